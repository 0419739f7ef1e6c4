"""The rule on a recorded data pipeline: which operator holds it back, seen from the queues and from the training."""

from __future__ import annotations

from typing import Any

import pandas as pd

from workbench.analyses.data_pipeline import (
    REASONS,
    WAIT_SHARE_LEAST,
    batch_waits,
    bottleneck,
    pipeline_operators,
)
from workbench.analyses.step_time import rank_step_times
from workbench.errors import MissingTableError
from workbench.findings.finding import Culprit, Evidence, Finding, RuledOut, Severity
from workbench.findings.rule import Rule, Tables
from workbench.tables import DATA_OPS

NAMES = ("data_ops", "data_queue_samples", "data_batches", "telemetry", "training_steps")  # what the verdict takes
WAIT_SHARE_WARNING = 0.10
WAIT_SHARE_CRITICAL = 0.30
FIXES = {
    "cpu": "Give {name} more workers up to the cores of the host (python_multiprocessing=True if it runs Python), do "
    "its work once and store the result (workbench data convert), or use MindSpore's own transforms",
    "gil": "{name} holds Python's lock: set python_multiprocessing=True for it, or replace its Python by MindSpore's "
    "transforms or NumPy calls on whole batches; more threads do not help",
    "waiting": "Raise num_parallel_workers of {name} (it waits, so threads are enough), read larger pieces "
    "(MindRecord), or cache what it waits for",
    "bursts": "{name} keeps up on the mean: raise prefetch_size so that the queues last, and even out its slow samples",
    "shuffle": "{name} fills its buffer anew in every epoch: make the buffer smaller than the epoch, or train with "
    "dataset.repeat() in place of many short epochs",
    "unknown": "Time {name} alone (workbench data tune), then raise num_parallel_workers",
}


def find_data_bottleneck(tables: Tables) -> list[Finding]:
    """One finding on the rank whose pipeline is waited for most; none where the pipelines keep up.

    Args:
        tables: `data_ops`; uses `data_queue_samples`, `data_batches`, `telemetry`, and `training_steps`, whose recorded
            wait for data stands above the profile's.
    """
    operators, found = pipeline_verdicts(tables)
    starved = found[~found["keeps_up"].astype(bool) & found["name"].notna()]
    if starved.empty:
        return []
    worst = starved.loc[starved["wait_share"].fillna(0.0).idxmax()]
    of_step = "step_share" in worst and worst["step_share"] == worst["step_share"]
    share = float(worst["step_share"] if of_step else worst["wait_share"])
    wait_us = float(worst["step_wait_us"] if of_step else worst["mean_wait_us"])
    return [_finding(worst, operators, share=share, wait_us=wait_us, of_step=of_step)]


def pipeline_verdicts(tables: Tables) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The operators of each rank's pipeline and what holds it back, from both sides.

    Args:
        tables: as `find_data_bottleneck` takes them.

    Returns:
        The table of `pipeline_operators`, and the one of `bottleneck` with mean_wait_us, step_share and step_wait_us
        (the Recorder's data wait of the typical step; missing if not recorded) and a sentence. Where the Recorder saw
        no waiting, the pipeline keeps up.

    Raises:
        MissingTableError: there is no `data_ops`.
    """
    if "data_ops" not in tables:
        raise MissingTableError("No data pipeline was profiled in this run.", fix=DATA_OPS.fix)
    operators = pipeline_operators(tables["data_ops"], tables.get("data_queue_samples"), tables.get("data_batches"))
    batches = tables.get("data_batches")
    waits = batch_waits(batches) if batches is not None else None
    found = bottleneck(operators, waits, host_idle_share=_idle_share(tables.get("telemetry")))
    step_share, step_wait_us = recorded_wait(tables.get("training_steps"))
    if step_share < WAIT_SHARE_LEAST:
        found = found.assign(keeps_up=True, name=None, reason="keeps_up")
    mean_us = {} if waits is None else dict(zip(waits["rank_id"], waits["mean_wait_us"], strict=True))
    found = found.assign(
        mean_wait_us=found["rank_id"].map(mean_us).astype("float64"), step_share=step_share, step_wait_us=step_wait_us
    )
    return operators, found.assign(sentence=[_sentence(row) for row in found.to_dict("records")])


def _sentence(row: dict[str, Any]) -> str:
    share = row["step_share"] if row["step_share"] == row["step_share"] else row["wait_share"]
    waited = "" if share != share else f"training waits {share:.1%} of the time for its batches"
    if row["keeps_up"]:
        return f"The pipeline keeps up{': ' + waited if waited else ''}."
    if not isinstance(row["name"], str):
        return f"The pipeline is too slow; no queue tells which operator ({waited})."
    return f"{row['name']} holds the pipeline back: it {REASONS[row['reason']]}{'; ' + waited if waited else ''}."


def recorded_wait(training_steps: pd.DataFrame | None) -> tuple[float, float]:
    """The Recorder's data wait of the typical step: share of it, microseconds; missing if it was not recorded."""
    if training_steps is None or training_steps.empty or not training_steps["data_wait_us"].notna().any():
        return float("nan"), float("nan")
    ranks = rank_step_times(training_steps)
    ranks = ranks[ranks["step_us"] > 0]
    if ranks.empty:
        return float("nan"), float("nan")
    wait = float(ranks["data_wait_us"].median())
    return wait / float(ranks["step_us"].median()), wait


def _finding(worst: pd.Series, operators: pd.DataFrame, *, share: float, wait_us: float, of_step: bool) -> Finding:
    name, reason = str(worst["name"]), str(worst["reason"])
    key = "shuffle" if reason == "bursts" and worst["op_type"] == "Shuffle" else reason
    waited = "" if share != share else f"; training waits {share:.0%} of the {'step' if of_step else 'time'}"
    return Finding(
        cause="data_starved",
        playbook="T6",
        severity=_severity(share),
        confidence="medium" if share != share or _may_be_another(reason, worst) else "high",
        title=f"{name} holds the data pipeline back: it {REASONS[reason]}{waited}.",
        fix=FIXES[key].format(name=name) + ".",
        source="input queue full, output queue empty while training waits (workbench.analyses.data_pipeline)",
        culprit=Culprit(data_op=name),
        saves_us_per_step=wait_us if wait_us == wait_us else None,
        evidence=_evidence(worst, operators, share=share, of_step=of_step),
        rules_out=_ruled_out(worst, operators),
    )


def _may_be_another(reason: str, worst: pd.Series) -> bool:
    """One thread that holds the lock is told by its processor time alone."""
    return reason == "gil" and not float(worst["num_workers"]) >= 2


def _severity(share: float) -> Severity:
    if share >= WAIT_SHARE_CRITICAL:
        return "critical"
    return "warning" if share >= WAIT_SHARE_WARNING or share != share else "info"


def _evidence(worst: pd.Series, operators: pd.DataFrame, *, share: float, of_step: bool) -> tuple[Evidence, ...]:
    where = f"rank {worst['rank_id']}, operator {worst['op_id']}"
    facts = [
        Evidence(fact=f"queue in front of {worst['name']} full", value=float(worst["input_fill_share"]), unit="share",
                 table="data_ops", where=where),
        Evidence(fact=f"queue behind {worst['name']} full", value=float(worst["output_fill_share"]), unit="share",
                 table="data_ops", where=where),
        Evidence(fact=f"processor use of {worst['name']}", value=float(worst["cpu_cores"]), unit="cores",
                 table="data_ops", where=where),
        Evidence(fact=f"workers of {worst['name']}", value=float(worst["num_workers"]), unit="workers",
                 table="data_ops", where=where),
    ]  # fmt: skip
    if share == share:
        table = "training_steps" if of_step else "data_batches"
        facts.append(Evidence(fact="waiting for data", value=share, unit="share", table=table))
    if of_step and worst["wait_share"] == worst["wait_share"]:
        words = "waiting for batches, as the pipeline saw it"
        facts.append(Evidence(fact=words, value=float(worst["wait_share"]), unit="share", table="data_batches"))
    others = operators[(operators["rank_id"] == worst["rank_id"]) & (operators["op_id"] != worst["op_id"])]
    facts += [
        Evidence(fact=f"queue behind {row.name_}", value=float(row.output_fill_share), unit="share", table="data_ops")
        for row in others.rename(columns={"name": "name_"}).dropna(subset=["output_fill_share"]).itertuples(index=False)
    ]
    return tuple(facts)


def _ruled_out(worst: pd.Series, operators: pd.DataFrame) -> tuple[RuledOut, ...]:
    mine = operators[(operators["rank_id"] == worst["rank_id"]) & (operators["op_id"] != worst["op_id"])]
    full = [str(row["name"]) for row in mine.to_dict("records") if row["output_fill_share"] >= 0.5]
    if not full:
        return ()
    words = f"the queue behind {', '.join(full)} was full: there was work ready"
    return (RuledOut(cause="slow_source", because=words),)


def _idle_share(telemetry: pd.DataFrame | None) -> float:
    if telemetry is None:
        return float("nan")
    return float(telemetry.loc[telemetry["metric"] == "host_cpu_idle_share", "value"].mean())


RULES: tuple[Rule, ...] = (
    Rule(
        causes=("data_starved",),
        needs=("data_ops",),
        uses=("data_queue_samples", "data_batches", "telemetry", "training_steps"),
        find=find_data_bottleneck,
    ),
)
