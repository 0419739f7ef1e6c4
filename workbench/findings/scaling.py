"""Points of a scaling curve, of profiles or of logs -> how much is lost, where it bends, what the loss is made of."""

from __future__ import annotations

import pandas as pd

from workbench.analyses.scaling import PARTS, scaling_efficiency
from workbench.analyses.scaling_logs import logged_points, logged_runs
from workbench.analyses.settings import setting
from workbench.analyses.version_change import changed_items, is_other_model
from workbench.findings.finding import Confidence, Evidence, Finding
from workbench.findings.log_network import find_no_rdma_fallback
from workbench.findings.rule import Rule, Tables

EFFICIENCY_WARNING = 0.8  # a fifth of the added devices does nothing
EFFICIENCY_CRITICAL = 0.5  # ... and half of them
RATIO_LEAST = 1.5  # device counts closer than that are one count
MAIN_SHARE = 0.5  # of the loss: a part that is more than all others together is the cause
COMPUTE_GROWTH = 0.3  # the passes themselves got longer: communication of the sharding is inside them
CAUSES = {
    "communication": "exposed_communication",
    "late_ranks": "slow_rank",
    "bubble": "pipeline_bubble",
    "input": "data_starved",
    "launch_gaps": "small_ops",
}
FIXES = {
    "exposed_communication": "Hide or shrink communication: overlap it with the backward pass, fuse small collectives, "
    "keep tensor parallelism inside a host, accumulate gradients over more micro-batches.",
    "slow_rank": "Find what makes single ranks late at this device count; notebooks/explore/communication.ipynb names "
    "them.",
    "pipeline_bubble": "Use more micro-batches per step, or fewer pipeline stages.",
    "data_starved": "Feed the added devices: more data workers, a share of the data on every host.",
    "small_ops": "Give each device more work per step: with little work, starting operators takes longer than running "
    "them.",
    "link_bound_sharding": "Keep sharded layers inside a host: tensor parallelism no wider than a host's devices, "
    "parameters sharded within a host and replicated between hosts; and shard less where memory allows.",
    "poor_scaling": "Profile both device counts at Level1 and compare them in notebooks/explore/scaling.ipynb: it "
    "splits the loss into communication, late ranks, bubble, input and launch gaps.",
}
SHARDING_WIDTH = ("tensor_model_parallel_size", "model_parallel", "tensor_parallel_size", "tp_size", "tp")
SHARDED_PARAMETERS = ("zero_stage", "stage", "zero3", "fsdp", "use_torch_fsdp2", "fully_shard")
DEVICES_PER_HOST = 8  # of training servers, where no line names the hosts
WORDS = {"late_ranks": "late ranks", "launch_gaps": "launch gaps", "unknown": "not known"}


def find_poor_scaling(
    points: pd.DataFrame, runs: pd.DataFrame | None = None, settings: pd.DataFrame | None = None
) -> list[Finding]:
    """One finding if the largest job uses less than `EFFICIENCY_WARNING` of its devices, against the smallest job.

    Args:
        points: as `workbench.analyses.scaling.scaling_efficiency` takes them; is_relative says that devices counts in
            units of the smallest job.
        runs: of logs, as `workbench.analyses.scaling_logs.logged_runs` returns; adds what their timers tell.
        settings: table `settings`; tells whether layers are sharded over hosts.

    Returns:
        The cause is the part that is more than half of the loss; "poor_scaling" where none is, or none is known.
    """
    if len(points) < 2:
        return []
    table = scaling_efficiency(points)
    last = table.iloc[-1]
    if float(last["ideal_speed_up"]) < RATIO_LEAST or float(last["efficiency_share"]) >= EFFICIENCY_WARNING:
        return []
    relative = bool(points["is_relative"].any()) if "is_relative" in points else False
    return [_finding(table, relative, _larger(points, runs), settings)]


def find_scaling_causes(tables: Tables) -> list[Finding]:
    """What logs of jobs at several device counts, or their start-up lines, tell: sockets first, then what is lost."""
    messages, settings = tables.get("log_messages"), tables.get("settings")
    runs = points = None
    if "training_steps" in tables:
        runs = logged_runs(_of_one_model(tables["training_steps"], settings), settings, messages, tables.get("series"))
        points = logged_points(runs) if len(runs) > 1 else None
    efficiency = None
    if points is not None and len(points):
        efficiency = _of_runs(points)
    found = [] if messages is None else find_no_rdma_fallback(messages, runs, efficiency)
    if points is None or any(f.severity != "info" for f in found):
        return found
    return found + find_poor_scaling(points, runs, settings)


def _of_one_model(training_steps: pd.DataFrame, settings: pd.DataFrame | None) -> pd.DataFrame:
    """Steps of the latest job, and of those that train the same model."""
    if "run" not in training_steps:
        return training_steps
    jobs = [job for _, job in training_steps.groupby("run")]
    files = [[str(s) for s in job["source"].dropna().unique()] for job in jobs]
    kept = [
        not is_other_model(job, jobs[-1], changed_items(settings, {0: own, 1: files[-1]}))
        for job, own in zip(jobs[:-1], files[:-1], strict=True)
    ]
    return pd.concat([*(job for job, keep in zip(jobs[:-1], kept, strict=True) if keep), jobs[-1]])


def _of_runs(points: pd.DataFrame) -> pd.DataFrame:
    """Efficiency per job: each job has the row of its device count."""
    table = scaling_efficiency(points.drop(columns=["run", "is_relative"]))
    return points[["run", "devices"]].merge(table, on="devices")


def _larger(points: pd.DataFrame, runs: pd.DataFrame | None) -> pd.DataFrame:
    """The jobs of the smallest and of the largest device count, in that order; empty where nothing tells."""
    if runs is None or "run" not in points:
        return pd.DataFrame()
    ends = [points.loc[points["devices"].idxmin(), "run"], points.loc[points["devices"].idxmax(), "run"]]
    return runs.set_index("run").loc[ends].reset_index()


def _finding(table: pd.DataFrame, relative: bool, ends: pd.DataFrame, settings: pd.DataFrame | None) -> Finding:
    last = table.iloc[-1]
    cause, confidence = _cause(last, ends, settings)
    efficiency = float(last["efficiency_share"])
    few, many = table["devices"].iloc[0], last["devices"]
    who = f"{last['ideal_speed_up']:.3g} times the devices give" if relative else f"{many:g} devices give"
    than = "the throughput" if relative else f"the throughput of {few:g}"
    return Finding(
        cause=cause,
        playbook="T4",
        severity="critical" if efficiency < EFFICIENCY_CRITICAL else "warning",
        confidence=confidence,
        title=f"{who} {last['speed_up']:.2f} times {than}: {efficiency:.0%} of the ideal.",
        fix=FIXES[cause],
        source="device time per unit of work against the smallest job; thresholds ours",
        evidence=(*_curve_facts(table, relative), *_part_facts(last), *_timer_facts(ends)),
    )


def _cause(last: pd.Series, ends: pd.DataFrame, settings: pd.DataFrame | None) -> tuple[str, Confidence]:
    lost = 1 - float(last["efficiency_share"])
    known = {p: float(last[f"lost_{p}_share"]) for p in PARTS if last[f"lost_{p}_share"] > MAIN_SHARE * lost}
    main = max(known, key=lambda part: known[part], default=None)
    if main in CAUSES:
        return CAUSES[main], "high"
    if ends.empty:
        return "poor_scaling", "medium"
    small, large = ends.iloc[0], ends.iloc[1]
    step, extra = float(large["step_us"]), lost * float(large["step_us"])
    if large["gradient_sync_us"] > MAIN_SHARE * extra:
        return "exposed_communication", "medium"
    before = small["compute_us"] if small["compute_us"] > 0 else small["step_us"]
    longer = float(large["compute_us"] if large["compute_us"] > 0 else step) / float(before) - 1
    if longer > COMPUTE_GROWTH and _shards_over_hosts(settings, large):
        return "link_bound_sharding", "medium"
    return "poor_scaling", "medium"


def _shards_over_hosts(settings: pd.DataFrame | None, job: pd.Series) -> bool:
    """Whether layers are sharded wider than a host, by the settings."""
    if settings is None or not (job["hosts"] > 1 or job["devices"] > DEVICES_PER_HOST):
        return False
    is_own = settings["source"].fillna("").str.startswith(str(job["run"]))
    settings = settings.assign(order=~is_own).sort_values("order", kind="stable")  # what its own log says counts first
    width = setting(settings, *SHARDING_WIDTH)
    per_host = job["devices"] / job["hosts"] if job["hosts"] > 1 else float(DEVICES_PER_HOST)
    wide = width is not None and width.isdigit() and int(width) > per_host
    stage = (setting(settings, *SHARDED_PARAMETERS) or "").lower()
    return wide or stage in ("3", "true", "full_shard", "full_shard auto_wrap")


def _curve_facts(table: pd.DataFrame, relative: bool) -> list[Evidence]:
    unit = "times the smallest job's devices" if relative else "devices"
    facts = [
        Evidence(fact=f"scaling efficiency at {row.devices:g} {unit}", value=float(row.efficiency_share), unit="share")
        for row in table.iloc[1:].itertuples()
    ]
    bend = table.loc[table["is_bend"], "devices"]
    if len(bend):
        facts.append(Evidence(fact="doubling the devices no longer pays from", value=float(bend.iloc[0]), unit=unit))
    return facts


def _part_facts(last: pd.Series) -> list[Evidence]:
    """The parts of the loss; with the efficiency they sum to 1."""
    shares = {p: float(last[f"lost_{p}_share"]) for p in (*PARTS, "unknown")}
    return [
        Evidence(fact=f"device time lost to {WORDS.get(part, part)}", value=share, unit="share")
        for part, share in shares.items()
        if share == share
    ]


def _timer_facts(ends: pd.DataFrame) -> list[Evidence]:
    names = {
        "step_us": "time of a step, median",
        "compute_us": "forward and backward pass, fastest rank",
        "gradient_sync_us": "gradient synchronisation, fastest rank",
        "gradient_sync_max_us": "gradient synchronisation, slowest rank",
    }
    return [
        Evidence(fact=fact, value=float(row[c]) / 1e3, unit="ms", table="training_steps", where=str(row["run"]))
        for _, row in ends.iterrows()
        for c, fact in names.items()
        if row[c] == row[c]
    ]


def _start_up_lines(tables: Tables) -> list[Finding]:
    return [] if "training_steps" in tables else find_scaling_causes(tables)


RULES: tuple[Rule, ...] = (
    Rule(
        causes=(
            "no_rdma_fallback",
            "pipeline_bubble",
            "exposed_communication",
            "slow_rank",
            "small_ops",
            "data_starved",
            "link_bound_sharding",
            "poor_scaling",
        ),
        needs=("training_steps",),
        uses=("settings", "log_messages", "series"),
        find=find_scaling_causes,
        all_runs=True,
    ),
    Rule(causes=("no_rdma_fallback",), needs=("log_messages",), find=_start_up_lines),
)
