"""What the fix of each finding gives back, by replaying the step without its cause."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from workbench.analyses.what_if import step_model, what_if
from workbench.errors import WorkbenchError
from workbench.findings.finding import Evidence, Finding
from workbench.findings.kernels import severity_of


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
    scenarios = [_scenario(finding, stages) for finding in findings]
    known = [s for s in scenarios if s is not None]
    if not known or "kernels" not in tables:
        return list(findings)
    try:
        gains = iter(what_if(step_model(tables), pd.DataFrame(known)).to_dict("records"))
    except WorkbenchError:  # no task has a step and a start: the estimates stand
        return list(findings)
    return [f if s is None else _with_gain(f, next(gains), wall_us) for f, s in zip(findings, scenarios, strict=True)]


def _scenario(finding: Finding, stages: pd.DataFrame) -> dict[str, Any] | None:
    """The row of `what_if` that takes the finding's cause away."""
    who, one_rank = finding.culprit, {"rank_id": finding.culprit.rank}
    if finding.cause == "slow_link":
        ends = re.fullmatch(r"(\d+)-(\d+)", who.link or "")  # numbers in a group are no ranks of the job
        return None if ends is None else {"what": "link", "src_rank": int(ends[1]), "dst_rank": int(ends[2])}
    if finding.cause == "pipeline_bubble":
        ranks = stages.loc[stages["stage"] == who.stage, "rank_id"].tolist()
        return {"what": "stage", "ranks": ranks} if ranks else None
    scenarios: dict[str, dict[str, Any]] = {
        "slow_rank": {"what": "rank", **one_rank},
        "slow_op": {"what": "op_type", "op_type": who.op, **one_rank},
        "data_starved": {"what": "data_wait", **one_rank},
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
    facts = [Evidence(fact="gain once all other causes are gone", value=with_others_us, unit="us per step")]
    if gain["is_masked"]:
        facts.append(Evidence(fact="masked: alone its fix saves little, another cause hides it", value="yes"))
    return replace(
        finding,
        severity=severity_of(max(saved_us, with_others_us), wall_us),
        saves_us_per_step=saved_us,
        saves_interval_us=interval if math.isfinite(interval[0]) else None,
        evidence=(*finding.evidence, *facts),
    )
