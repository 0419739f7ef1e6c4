"""Rules on profiled steps: waiting for data, single long steps, compiling again, a rank whose host is late."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from workbench.analyses.device_stalls import device_stalls, stalled_rank
from workbench.analyses.statistics import MAD_TO_SIGMA, mad
from workbench.findings.finding import Culprit, Evidence, Finding, RuledOut, Steps
from workbench.findings.kernels import severity_of

WAIT_SHARE_WARNING = 0.05
LATE_SIGMAS = 6.0
SPREAD_RANKS_LEAST = 4
LATE_ERRORS = 4.0  # standard errors over steps, and late in 80 % of them: chance makes one in 10,000 so
LATE_STEPS_LEAST = 5
SEEN_SHARE_LEAST = 0.8  # a rank that is late by chance is so in half of the steps
LISTED_STEPS = 20
_HOST_PARTS = {
    "data_wait": "waits for its batch",
    "launch_gap": "launches its kernels",
    "unknown": "idles before its kernels",
}


def find_data_starved(steps: pd.DataFrame, data_ops: pd.DataFrame | None = None) -> list[Finding]:
    """The typical step of the typical rank waits for its batch. Of two ranks the typical one waits less.

    Args:
        steps: as `device_steps` returns.
        data_ops: table `data_ops`, or None: names the stage of the pipeline in front of which the queue is full.
    """
    ranks = steps.groupby("rank_id")[["data_wait_us", "wall_us"]].median()
    if ranks.empty:
        return []
    wait_us = float(ranks["data_wait_us"].quantile(0.5, interpolation="lower"))
    wall_us = float(ranks["wall_us"].median())
    if not wait_us >= WAIT_SHARE_WARNING * wall_us:
        return []
    slowest = _slowest_data_op(data_ops)
    return [
        Finding(
            cause="data_starved",
            playbook="T6",
            severity=severity_of(wait_us, wall_us),
            confidence="high",
            title=f"Each step waits {wait_us / 1e3:.1f} ms of {wall_us / 1e3:.1f} ms "
            f"({wait_us / wall_us:.0%}) for its batch.",
            fix=f"Speed up the data pipeline{'' if slowest is None else f', first {slowest}'}: raise "
            "num_parallel_workers, "
            "convert to MindRecord, or move work out of Python.",
            source="time of Pipeline::GetNext before the step's first device task; threshold ours",
            culprit=Culprit(data_op=slowest),
            saves_us_per_step=wait_us,
            evidence=(
                Evidence(fact="wait for data", value=wait_us, unit="us per step", table="host_ops"),
                Evidence(fact="share of the step", value=wait_us / wall_us, unit="share", table="step_time"),
            ),
        )
    ]


def find_late_host(own: pd.DataFrame, *, wall_us: float, steps: pd.DataFrame | None = None) -> list[Finding]:
    """Ranks that come late because of their data or their host, and not of their device.

    Args:
        own: as `own_time` returns.
        wall_us: typical step of the job.
        steps: as `device_steps` returns, or None: shows how long the others wait.
    """
    if len(own) < 2:
        return []
    limit = np.full(len(own), LATE_SIGMAS * MAD_TO_SIGMA * mad(own["excess_us"]))
    if len(own) < SPREAD_RANKS_LEAST:  # two ranks lie equally far from their median: only the steps show the noise
        limit = np.where(own["steps"] >= LATE_STEPS_LEAST, LATE_ERRORS * own["error_us"], np.inf)
    late = own[(own["excess_us"] > limit) & (own["seen_share"] >= SEEN_SHARE_LEAST)]
    found = []
    for _, row in late.iterrows():
        parts = {p: float(row[f"{p}_excess_us"]) for p in ("computing", *_HOST_PARTS)}
        part = max(parts, key=lambda p: parts[p])
        severity = severity_of(parts[part], wall_us)
        if part in _HOST_PARTS and severity != "info":
            finding = _late_host(int(row["rank_id"]), part, parts[part], wall_us)
            found.append(replace(finding, evidence=(*finding.evidence, *_waits_of_others(finding.culprit.rank, steps))))
    return found


def _waits_of_others(rank: int | None, steps: pd.DataFrame | None) -> list[Evidence]:
    """How long the other ranks wait for a late one, in the rank that waits longest."""
    others = pd.DataFrame() if steps is None else steps[steps["rank_id"] != rank]
    if others.empty:
        return []
    wait_us = others.groupby("rank_id")["late_rank_us"].median()
    where = f"rank {wait_us.idxmax()}"
    return [Evidence(fact="longest wait of another rank for a late one", value=float(wait_us.max()), unit="us per step",
                     table="collectives", where=where)]  # fmt: skip


def find_device_stalls(
    steps: pd.DataFrame, collectives: pd.DataFrame | None = None, host_ops: pd.DataFrame | None = None
) -> list[Finding]:
    """Single steps that took far longer than the rest: compiled again, or stalled, and by whom.

    Args:
        steps: as `device_steps` returns.
        collectives: table `collectives`, or None: tells which rank held up a transfer.
        host_ops: table `host_ops`, or None: tells data stalls from compilation.
    """
    stalls = device_stalls(steps, host_ops)
    if stalls.empty:
        return []
    count, wall_us = int(steps.groupby("rank_id").size().max()), float(steps["wall_us"].median())
    found = []
    for cause, of_cause in stalls.groupby("cause"):
        lost_us = float(of_cause["excess_us"].sum())
        ranks = {stalled_rank(row, steps, collectives) for row in of_cause.to_dict("records")}
        rank = ranks.pop() if len(ranks) == 1 else None
        shared = {
            "severity": severity_of(lost_us / count, wall_us),
            "saves_us_per_step": lost_us / count,
            "steps": _listed(of_cause["step"]),
            "source": "job's step against its median over steps, 8 robust deviations and 10 % "
            "(workbench.analyses.device_stalls)",
        }
        found.append(
            _recompile(of_cause, lost_us, shared) if cause == "recompile" else _stall(of_cause, rank, lost_us, shared)
        )
    return found


def _recompile(stalls: pd.DataFrame, lost_us: float, shared: dict[str, Any]) -> Finding:
    proven = bool((stalls["part"] == "compile_us").all())
    return Finding(
        cause="recompile",
        playbook="T8",
        confidence="high" if proven else "medium",
        title=f"{len(stalls)} step(s) begin {lost_us / len(stalls) / 1e3:,.0f} ms late on all ranks at once, "
        "before the first "
        "kernel: the graph was compiled again.",
        fix="Pad or bucket batches to few shapes, drop the ragged last batch, or declare dynamic dimensions.",
        evidence=(
            Evidence(fact="time lost", value=lost_us / 1e6, unit="s", table="step_time"),
            Evidence(fact="what is longer", value=str(stalls["part"].iloc[0]), table="step_time"),
        ),
        rules_out=(
            RuledOut(cause="data_starved", because="the data pipeline's total time is less than what was lost"),
        ),
        **shared,
    )


def _stall(stalls: pd.DataFrame, rank: int | None, lost_us: float, shared: dict[str, Any]) -> Finding:
    part = str(stalls["part"].iloc[0]).removesuffix("_us")
    who = "" if rank is None else f" because of rank {rank}"
    worst = stalls.loc[stalls["excess_us"].idxmax()]
    return Finding(
        cause="stall_steps",
        sub_cause=part,
        playbook="T7",
        confidence="medium" if rank is None else "high",
        title=f"{len(stalls)} step(s) took far longer{who} and cost {lost_us / 1e6:.2f} s; the worst is step "
        f"{worst['step']:.0f} with {worst['wall_us'] / 1e3:,.0f} ms instead of {worst['typical_us'] / 1e3:,.0f} ms.",
        fix="Look at what else ran then: network errors and retries for transfers, garbage collection and "
        "saving for idle time.",
        culprit=Culprit(rank=rank),
        evidence=(
            Evidence(fact="time lost", value=lost_us / 1e6, unit="s", table="step_time"),
            Evidence(fact="what is longer", value=part, table="step_time"),
        ),
        **shared,
    )


def _late_host(rank: int, part: str, late_us: float, wall_us: float) -> Finding:
    data = part == "data_wait"
    return Finding(
        cause="data_starved" if data else "slow_rank",
        sub_cause="one_rank" if data else "busy_host",
        playbook="T6" if data else "T4",
        severity=severity_of(late_us, wall_us),
        confidence="high" if data else "medium",
        title=f"Rank {rank} {_HOST_PARTS[part]} {late_us / 1e3:.1f} ms longer per step than its peers; the "
        "others wait.",
        fix=f"Compare rank {rank}'s data files, disk and host load with its peers'."
        if data
        else f"Look at the host of rank {rank}: CPU load, pinning of its processes, other jobs.",
        source="own time against the peers', medians over steps; 6 robust deviations and 1 % of the step, ours",
        culprit=Culprit(rank=rank),
        saves_us_per_step=late_us,
        evidence=(Evidence(fact=f"{part} above the peers'", value=late_us, unit="us per step", table="step_time"),),
        rules_out=(RuledOut(cause="slow_op", because="its operators take as long as its peers'"),),
    )


def _slowest_data_op(data_ops: pd.DataFrame | None) -> str | None:
    """The operator whose own output queue is the emptiest while the one that feeds it is not empty."""
    if data_ops is None or data_ops.empty:
        return None
    queues = data_ops.groupby(["op_id", "op_type"])["queue_fill_share"].median().dropna()
    busy = data_ops.groupby(["op_id", "op_type"])["cpu_share"].median().reindex(queues.index)
    return str(busy.idxmax()[1]) if busy.notna().any() else None


def _listed(steps: pd.Series) -> Steps:
    return Steps(first=int(steps.min()), last=int(steps.max()), list=tuple(int(s) for s in steps[:LISTED_STEPS]))
