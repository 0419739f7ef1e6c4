"""Rule on the course of the step time: it rose and stayed, rose and came back, or creeps up."""

from __future__ import annotations

import math

import pandas as pd

from workbench.analyses.statistics import MAD_TO_SIGMA, mad
from workbench.analyses.step_records import of_last_batch_size
from workbench.analyses.step_trend import (
    CHANGE_SHARE,
    CHANGE_SIGMAS,
    grown_part,
    job_step_times,
    step_levels,
    step_trend,
)
from workbench.findings.finding import Evidence, Finding, Steps
from workbench.findings.rule import Rule

LEVEL_STEPS_LEAST = 10
COST_SHARE_WARNING = 0.01  # of all steps' time
LOST_LEAST_US = 1e6  # of a whole training: less is nobody's time
UNSTEADY_SHARE, UNSTEADY_LOST_US = 0.10, 10e6  # steps that scatter so among themselves are held up, until it costs more
CREEP_STEPS_LEAST = 60
CREEP_P = 1e-6  # neighbouring steps depend on each other: far below the usual levels
PART_WORDS = {"run_us": "the step itself", "data_wait_us": "waiting for data"}
_SOURCE = "medians of blocks of steps, merged until they differ by 5 % and 4 robust deviations; thresholds ours"


def find_step_time_drift(series: pd.DataFrame, *, table: str = "training_steps") -> list[Finding]:
    """One finding if the typical step takes 5 % longer over a part of the run than over the rest.

    Single stalls are no drift. A run that begins slowly and gets faster is told as info: nothing is wrong any more. So
    are recorded steps (a profile is a sample of more) that lost next to nothing, and those that lost little and scatter
    among themselves, as on a host that others use, too.

    Args:
        series: as `job_step_times` or `job_device_times` returns.
        table: where it comes from, for the evidence.
    """
    levels, trend = step_levels(series), step_trend(series)
    creeps = (
        len(series) >= CREEP_STEPS_LEAST
        and trend["change_share"] >= CHANGE_SHARE
        and trend["sigmas"] >= CHANGE_SIGMAS
        and trend["p_value"] <= CREEP_P
    )
    if creeps and (len(levels) == 1 or (len(levels) > 2 and levels["level_us"].is_monotonic_increasing)):
        return [_creep(series, trend, table)]
    slow = levels[(levels["excess_share"] >= CHANGE_SHARE) & (levels["steps"] >= LEVEL_STEPS_LEAST)]
    return [] if slow.empty else [_level(series, levels, slow, table)]


def _level(series: pd.DataFrame, levels: pd.DataFrame, slow: pd.DataFrame, table: str) -> Finding:
    """The change to the level that costs most, from its onset to its recovery."""
    cost_us = slow["excess_us"] * slow["steps"]
    worst = int(cost_us.idxmax())
    first = last = worst
    while first - 1 in slow.index:
        first -= 1
    while last + 1 in slow.index:
        last += 1
    onset, end = int(levels.loc[first, "first_step"]), int(levels.loc[last, "last_step"])
    base_us = float(levels.loc[worst, "level_us"] - levels.loc[worst, "excess_us"])
    lost_us = float(cost_us.sum())
    recovered = last < int(levels.index[-1])
    since = f"from step {onset} to {end}" if recovered else f"since step {onset}"
    is_grave = first > 0 and lost_us >= COST_SHARE_WARNING * float((levels["level_us"] * levels["steps"]).sum())
    is_grave = is_grave and not (table == "training_steps" and _is_usual(series, onset, end, lost_us))
    return Finding(
        cause="step_time_drift",
        sub_cause="jump",
        playbook="T2",
        severity="warning" if is_grave else "info",
        confidence="medium",
        title=f"Steps take {levels.loc[worst, 'level_us'] / 1e3:,.1f} ms instead of {base_us / 1e3:,.1f} ms "
        f"({levels.loc[worst, 'excess_share']:+.0%}) {since}{', then they recover' if recovered else ''}; "
        f"this cost {lost_us / 1e6:.1f} s.",
        fix=f"Look at what changed at step {onset}: other jobs on the hosts, clock and temperature of the cards, "
        "storage, sequence lengths; profile a step before and one after it.",
        source=_SOURCE,
        steps=Steps(first=onset, last=end),
        saves_us_per_step=lost_us / float(levels["steps"].sum()),
        evidence=(
            Evidence(fact="typical step before or after", value=base_us, unit="us", table=table),
            Evidence(fact="typical step then", value=float(levels.loc[worst, "level_us"]), unit="us", table=table,
                     where=f"steps {onset} to {end}"),
            *_growth(series, onset, end, table),
            Evidence(fact="recovered", value="yes" if recovered else "no"),
        ),
    )  # fmt: skip


def _is_usual(series: pd.DataFrame, onset: int, end: int, lost_us: float) -> bool:
    """Whether the slow steps cost next to nothing, or little and are unsteady: held up, and not slower."""
    wall = series.loc[series["step"].between(onset, end), "wall_us"]
    scatter = MAD_TO_SIGMA * mad(wall) / float(wall.median())
    return lost_us < LOST_LEAST_US or (lost_us < UNSTEADY_LOST_US and scatter >= UNSTEADY_SHARE)


def _creep(series: pd.DataFrame, trend: dict[str, float], table: str) -> Finding:
    first, last = int(series["step"].min()), int(series["step"].max())
    start_us, end_us = trend["first_us"], trend["last_us"]
    lost_us = max(0.0, trend["mean_us"] - start_us)
    sigmas = trend["sigmas"]
    return Finding(
        cause="step_time_drift",
        sub_cause="creep",
        playbook="T2",
        severity="info" if table == "training_steps" and lost_us * len(series) < LOST_LEAST_US else "warning",
        confidence="medium",
        title=f"The step time creeps from {start_us / 1e3:,.1f} to {end_us / 1e3:,.1f} ms "
        f"({end_us / start_us - 1:+.0%}) between step {first} and {last}.",
        fix="Look for what grows with the steps: lists and tensors kept by callbacks, host memory, caches, files; "
        "restart from a checkpoint to see whether it starts low again.",
        source="Theil-Sen line through medians of blocks, Kendall's tau; thresholds ours",
        steps=Steps(first=first, last=last),
        saves_us_per_step=lost_us,
        evidence=(
            Evidence(fact="typical step of the first tenth", value=start_us, unit="us", table=table),
            Evidence(fact="typical step of the last tenth", value=end_us, unit="us", table=table),
            *((Evidence(fact="change over the scatter around the line", value=sigmas, unit="robust deviations"),)
              if math.isfinite(sigmas) else ()),
            *_growth(series, int(series["step"].median()), last, table),
        ),
    )  # fmt: skip


def _growth(series: pd.DataFrame, first: int, last: int, table: str) -> list[Evidence]:
    part, grown_us = grown_part(series, first, last)
    words = PART_WORDS.get(part, part.removesuffix("_us").replace("_", " "))
    return [] if part == "wall_us" else [Evidence(fact=f"growth of {words}", value=grown_us, unit="us", table=table)]


RULES: tuple[Rule, ...] = (
    Rule(
        causes=("step_time_drift",),
        needs=("training_steps",),
        uses=("settings",),
        find=lambda t: find_step_time_drift(job_step_times(of_last_batch_size(t["training_steps"], t.get("settings")))),
    ),
)
