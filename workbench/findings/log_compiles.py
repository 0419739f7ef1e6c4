"""Compilations in logs and new shapes of batches -> graphs that are compiled again during the training."""

from __future__ import annotations

import math

import pandas as pd

from workbench.analyses.log_compiles import (
    NewShapes,
    WarnedSteps,
    compiled_functions,
    new_shapes,
    wall_us,
    warned_steps,
)
from workbench.analyses.step_records import steps_told
from workbench.findings.finding import Culprit, Evidence, Finding, RuledOut, Severity, Steps
from workbench.findings.rule import Rule

SHARE_WARNING = 0.01  # of the wall time, as for stalled steps
SHARE_CRITICAL = 0.20
FIRST_SLOW_SHARE = 0.8
SLOW_FIRSTS_LEAST = 3  # beside the very first step, which compiles in any case
WARNINGS_LEAST = 3
LISTED_STEPS = 20
FIX_SHAPES = (
    "Pad or bucket the batches to few lengths, or declare the dimension dynamic for the compiled cell (set_inputs, "
    "symbolic dimensions); keep the compile cache on and watch the compilations per 100 steps."
)
FIX_OBJECTS = (
    "Make the compiled function or cell once, outside of the loop, and reuse it (@jit on a module-level function)."
)
SOURCE = "compile lines of MindSpore (GLOG_v=1) against step times and sequence lengths; thresholds ours"


def find_recompile_in_logs(
    training_steps: pd.DataFrame | None = None,
    events: pd.DataFrame | None = None,
    log_messages: pd.DataFrame | None = None,
) -> list[Finding]:
    """One finding if one function is compiled more than once in a training.

    Proof, the best first: compile lines of one phase; slow steps that are the first of their sequence length; slow
    steps right behind a warning that a function is compiled again; those warnings alone.

    Args:
        training_steps: table `training_steps`, one row per rank and step, or None.
        events: table `events`, or None: compilations.
        log_messages: table `log_messages`, or None: warnings.
    """
    functions = compiled_functions(events)
    again = functions[(functions["compiles"] > 1) & (functions["phase"] != "")]
    shapes = None if training_steps is None else new_shapes(training_steps)
    of_shapes = shapes if shapes is not None and _fit(shapes) else None
    wall = wall_us(training_steps, events)
    steps = 0 if training_steps is None else steps_told(training_steps)
    if len(again):
        return [_compiled(again.iloc[0], of_shapes, wall, steps)]
    if of_shapes is not None:
        return [_shapes_only(of_shapes, wall, steps)]
    return _warnings_only(log_messages, training_steps, steps, wall)


def _fit(shapes: NewShapes) -> bool:
    """Whether the slow steps are the first ones of their length, and those are slow."""
    firsts = round(shapes.slow_first_share * shapes.lengths)
    return (
        firsts >= SLOW_FIRSTS_LEAST
        and shapes.slow_first_share >= FIRST_SLOW_SHARE
        and shapes.slow_later <= (1 - FIRST_SLOW_SHARE) * len(shapes.slow_steps)
    )


def _severity(share: float) -> Severity:
    return "critical" if share >= SHARE_CRITICAL else "warning" if share >= SHARE_WARNING else "info"


def _compiled(row: pd.Series, shapes: NewShapes | None, wall: float, steps: int) -> Finding:
    share = float(row["again_us"]) / wall if wall > 0 else math.nan
    times, seconds = int(row["compiles"]), float(row["total_us"]) / 1e6
    made = bool(row["made_again"])
    of_time = f" ({share:.0%} of the time)" if math.isfinite(share) else ""
    return Finding(
        cause="recompile",
        sub_cause="function_made_again" if made else "new_shapes" if shapes is not None else None,
        playbook="T8",
        severity=_severity(share) if math.isfinite(share) else "warning",
        confidence="high",
        title=f"{row['function'] or 'One function'} was compiled {times} times; compiling again took "
        f"{float(row['again_us']) / 1e6:,.0f} s{of_time}.",
        fix=FIX_OBJECTS if made else FIX_SHAPES,
        source=SOURCE,
        culprit=Culprit(rank=int(row["rank_id"]), op=str(row["function"]) or None),
        steps=_listed(row["steps"]),
        saves_us_per_step=float(row["again_us"]) / steps if steps else None,
        evidence=(
            Evidence(fact="compilations of one phase", value=times, table="events",
                     where=f"rank {row['rank_id']}, {row['function']}"),
            Evidence(fact="time spent compiling", value=seconds, unit="s", table="events"),
            Evidence(fact="compiling, share of the wall time", value=float(row["total_us"]) / wall, unit="share",
                     table="events"),
            *_rate(times - 1, steps),
            *_shape_facts(shapes),
        ),
        rules_out=_ruled_out(shapes),
    )  # fmt: skip


def _shapes_only(shapes: NewShapes, wall: float, steps: int) -> Finding:
    share = shapes.lost_us / wall if wall > 0 else math.nan
    return Finding(
        cause="recompile",
        sub_cause="new_shapes",
        playbook="T8",
        severity=_severity(share) if math.isfinite(share) else "warning",
        confidence="medium",
        title=f"The first step of each of {shapes.lengths} sequence lengths takes {shapes.slow_us / 1e6:,.1f} s "
        f"instead of {shapes.typical_us / 1e6:,.2f} s: the graph is compiled for each of them.",
        fix=FIX_SHAPES,
        source=SOURCE,
        steps=_listed(shapes.slow_steps[1:]),
        saves_us_per_step=shapes.lost_us / steps if steps else None,
        evidence=(
            Evidence(fact="time lost in these steps, share of the wall time", value=share, unit="share"),
            *_shape_facts(shapes),
            Evidence(fact="not known: the compilations themselves; log with GLOG_v=1"),
        ),
        rules_out=_ruled_out(shapes),
    )


def _warnings_only(
    log_messages: pd.DataFrame | None, training_steps: pd.DataFrame | None, steps: int, wall: float
) -> list[Finding]:
    if log_messages is None:
        return []
    said = log_messages[
        (log_messages["kind"] == "recompile") & log_messages["text"].str.contains("compiled again", na=False)
    ]
    per_rank = said.groupby("rank_id", dropna=False).size()
    if per_rank.empty or per_rank.max() < WARNINGS_LEAST:
        return []
    warned = None if training_steps is None else warned_steps(training_steps, said)
    if warned is not None and _are_the_slow_ones(warned):
        return [_warned(said, warned, wall, steps)]
    count = int(per_rank.max())
    return [
        Finding(
            cause="recompile",
            sub_cause="function_made_again",
            playbook="T8",
            severity="warning",
            confidence="medium",
            title=f"MindSpore warns {count} times that a function is compiled again.",
            fix=FIX_OBJECTS,
            source=SOURCE,
            steps=_listed(tuple(int(s) for s in said["step"].dropna().unique())),
            evidence=(
                *_warning_facts(said, count, steps),
                Evidence(fact="not known: how long compiling takes; log with GLOG_v=1"),
            ),
        )
    ]


def _are_the_slow_ones(warned: WarnedSteps) -> bool:
    slow = len(warned.steps) + warned.slow_others
    return len(warned.steps) >= WARNINGS_LEAST and len(warned.steps) >= FIRST_SLOW_SHARE * slow


def _warned(said: pd.DataFrame, warned: WarnedSteps, wall: float, steps: int) -> Finding:
    """Two facts that agree: the log warns, and the next step is the slow one."""
    share = warned.lost_us / wall if wall > 0 else math.nan
    count = int(said.groupby("rank_id").size().max())
    return Finding(
        cause="recompile",
        sub_cause="function_made_again",
        playbook="T8",
        severity=_severity(share) if math.isfinite(share) else "warning",
        confidence="high",
        title=f"MindSpore warns {count} times that a function is compiled again, and the steps behind "
        f"{len(warned.steps)} of the warnings took {warned.lost_us / 1e6:,.0f} s longer than the others.",
        fix=FIX_OBJECTS,
        source=SOURCE,
        steps=_listed(warned.steps),
        saves_us_per_step=warned.lost_us / steps if steps else None,
        evidence=(
            *_warning_facts(said, count, steps),
            Evidence(fact="slow steps right behind a warning", value=len(warned.steps), table="training_steps",
                     unit=f"of {len(warned.steps) + warned.slow_others} slow steps"),
            Evidence(fact="typical step", value=warned.typical_us / 1e6, unit="s", table="training_steps"),
            Evidence(fact="time lost in them, share of the wall time", value=share, unit="share"),
        ),
    )  # fmt: skip


def _warning_facts(said: pd.DataFrame, count: int, steps: int) -> tuple[Evidence, ...]:
    return (
        Evidence(fact="warnings of one rank", value=count, table="log_messages"),
        Evidence(fact="the first", value=str(said["text"].iloc[0])[:160], table="log_messages"),
        *_rate(count, steps),
    )


def _rate(again: int, steps: int) -> tuple[Evidence, ...]:
    if not steps:
        return ()
    return (Evidence(fact="compiled again per 100 steps", value=100 * again / steps, table="training_steps"),)


def _shape_facts(shapes: NewShapes | None) -> tuple[Evidence, ...]:
    if shapes is None:
        return ()
    half = shapes.first_steps[-1] / 2
    return (
        Evidence(fact="distinct sequence lengths", value=shapes.lengths, table="training_steps"),
        Evidence(fact="slow steps that are the first of their length", unit=f"of {len(shapes.slow_steps)} slow steps",
                 value=len(shapes.slow_steps) - shapes.slow_later, table="training_steps"),
        Evidence(fact="first steps of a length that are slow", value=shapes.slow_first_share, unit="share",
                 table="training_steps"),
        Evidence(fact="typical step of a length that came before", value=shapes.typical_us / 1e6, unit="s",
                 table="training_steps"),
        Evidence(fact="new lengths in the first half of the time until the last new one", unit=f"of {shapes.lengths}",
                 value=sum(s <= half for s in shapes.first_steps), table="training_steps"),
    )  # fmt: skip


def _ruled_out(shapes: NewShapes | None) -> tuple[RuledOut, ...]:
    if shapes is None:
        return ()
    because = "a length that came before is fast again: waits do not depend on whether a length is new"
    return (RuledOut(cause="data_starved", because=because),)


def _listed(steps: tuple[int, ...]) -> Steps:
    if not steps:
        return Steps()
    return Steps(first=min(steps), last=max(steps), list=tuple(steps[:LISTED_STEPS]))


RULES: tuple[Rule, ...] = (
    Rule(
        causes=("recompile",),
        needs=(),
        uses=("training_steps", "events", "log_messages"),
        find=lambda t: find_recompile_in_logs(t.get("training_steps"), t.get("events"), t.get("log_messages")),
    ),
)
