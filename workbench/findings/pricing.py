"""What the fix of each finding gives back, by replaying the step without its cause."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from workbench.analyses.step_model import StepModel
from workbench.analyses.what_if import step_model, what_if
from workbench.errors import WorkbenchError
from workbench.findings.communication import MICRO_BATCHES_PER_STAGE
from workbench.findings.finding import Evidence, Finding
from workbench.findings.kernels import severity_of

COMPARE_STARTS = ("unfused_allreduce", "no_overlap", "rank_late")  # causes told from starts on several ranks' clocks
DEVICE_SLOW = "device_slow"  # sub-cause of slow_rank: all its operators are slower by one factor
GAIN_OF_ITS_OWN = "gain once all other causes are gone"  # a fact of every finding whose gain is replayed
_COLUMNS = ["what", "rank_id", "ranks", "op_type", "src_rank", "dst_rank", "steps", "micro_batches"]


def priced(
    findings: Sequence[Finding], tables: Mapping[str, pd.DataFrame], stages: pd.DataFrame, *, wall_us: float
) -> list[Finding]:
    """The findings with the replayed gain of their fix; those that no scenario fits keep their estimate.

    Args:
        findings: of the rules on device tables.
        tables: tables of the run; without `kernels` nothing can be replayed.
        stages: as `pipeline_stages` returns.
        wall_us: typical step of the job: severity follows the gain, or what it is once the other causes are gone.

    Returns:
        In the same order. A finding whose cause alone saves little because another hides it has a fact that says so.
    """
    compiling = sorted({s for f in findings if f.cause == "recompile" for s in f.steps.list or ()})
    scenarios = [_scenario(finding, stages, tables, compiling) for finding in findings]
    if "kernels" not in tables or all(s is None for s in scenarios):
        return list(findings)
    try:
        model = step_model(tables)
        refused = [None if s is None else _refusal(model, s) for s in scenarios]
        known = [s for s, reason in zip(scenarios, refused, strict=True) if s is not None and reason is None]
        gains = iter(what_if(model, pd.DataFrame(known, columns=_COLUMNS)).to_dict("records"))
    except (
        WorkbenchError
    ) as error:  # no task has a step and a start, clocks that cannot be compared, cut or mixed steps
        reason = str(error).splitlines()[0]
        return [f if s is None else _estimated(f, reason) for f, s in zip(findings, scenarios, strict=True)]
    return [
        f if s is None else _with_gain(f, next(gains), wall_us) if reason is None else _estimated(f, reason)
        for f, s, reason in zip(findings, scenarios, refused, strict=True)
    ]


def doubted(findings: Sequence[Finding], unclear: pd.DataFrame) -> list[Finding]:
    """The findings, with what clocks that cannot be compared take away from them.

    Durations and waits are measured on one clock each and stay. What compares the starts of several ranks becomes of
    low confidence and names no rank.

    Args:
        findings: of the rules on device tables.
        unclear: as `unclear_clocks` returns; empty: nothing changes.
    """
    if unclear.empty:
        return list(findings)
    ranks = ", ".join(str(int(r)) for r in unclear["rank_id"])
    fact = Evidence(
        fact=f"clocks of ranks {ranks} cannot be compared with the others': what rests on that is withheld",
        value=float(unclear["spread_us"].max()), unit="us", table="collectives",
    )  # fmt: skip
    said = [replace(f, evidence=(*f.evidence, fact)) for f in findings]
    return [
        replace(f, confidence="low", culprit=replace(f.culprit, rank=None)) if f.cause in COMPARE_STARTS else f
        for f in said
    ]


def _refusal(model: StepModel, scenario: dict[str, Any]) -> str | None:
    """Why the scenario cannot be replayed, None if it can."""
    if scenario["what"] not in ("link", "micro_batches"):
        return None
    try:
        what_if(model, pd.DataFrame([scenario]))
    except WorkbenchError as error:
        return str(error).splitlines()[0]
    return None


def _estimated(finding: Finding, reason: str) -> Finding:
    fact = Evidence(fact="the gain is estimated, not replayed", value=reason)
    return replace(finding, evidence=(*finding.evidence, fact))


def _scenario(
    finding: Finding, stages: pd.DataFrame, tables: Mapping[str, pd.DataFrame], compiling: Sequence[int]
) -> dict[str, Any] | None:
    """The row of `what_if` that takes the finding's cause away; `compiling` steps begin late for a reason of theirs."""
    who, one_rank = finding.culprit, {"rank_id": finding.culprit.rank}
    if finding.sub_cause == "more_work":  # peers run other shapes: there is nothing to replay it with
        return None
    if finding.cause == "slow_link":
        ends = re.fullmatch(r"(\d+)-(\d+)", who.link or "")  # numbers in a group are no ranks of the job
        return (
            None
            if ends is None or "links" not in tables
            else {"what": "link", "src_rank": int(ends[1]), "dst_rank": int(ends[2])}
        )
    if finding.cause == "pipeline_bubble" and finding.culprit.stage is None:
        wanted = MICRO_BATCHES_PER_STAGE * int(stages["stage"].nunique())
        return {"what": "micro_batches", "micro_batches": wanted}
    if finding.cause == "pipeline_bubble":
        ranks = stages.loc[stages["stage"] == who.stage, "rank_id"].tolist()
        return {"what": "device", "ranks": ranks} if ranks else None
    scenarios: dict[str, dict[str, Any]] = {
        "slow_rank": {"what": "device" if finding.sub_cause == DEVICE_SLOW else "rank", **one_rank},
        "slow_op": {"what": "op_type", "op_type": who.op, **one_rank},
        "data_starved": {"what": "data_wait", **one_rank, "steps": compiling or None},
        "stall_steps": {"what": "steps", "steps": finding.steps.list},
        "recompile": {"what": "steps", "steps": finding.steps.list},
        "unfused_allreduce": {"what": "fusion"},
        "no_overlap": {"what": "overlap"},
        "small_ops": {"what": "small_ops"},
    }
    return scenarios.get(finding.cause)


def _with_gain(finding: Finding, gain: Mapping[Any, Any], wall_us: float) -> Finding:
    saved_us, with_others_us = float(gain["saved_us"]), float(gain["saved_if_others_fixed_us"])
    interval = (float(gain["low_us"]), float(gain["high_us"]))
    facts = [Evidence(fact=GAIN_OF_ITS_OWN, value=with_others_us, unit="us per step")]
    if gain["is_masked"]:
        facts.append(Evidence(fact="masked: alone its fix saves little, another cause hides it", value="yes"))
    return replace(
        finding,
        severity=severity_of(max(saved_us, with_others_us), wall_us),
        saves_us_per_step=saved_us,
        saves_interval_us=interval if math.isfinite(interval[0]) else None,
        evidence=(*finding.evidence, *facts),
    )
