"""Rule on evaluations that disturb the training: time taken inside it, steps slowed down from outside."""

from __future__ import annotations

import pandas as pd

from workbench.analyses.interference import OTHER, OWN, evaluation_cost, evaluation_windows
from workbench.analyses.step_records import steps_told
from workbench.findings.finding import Evidence, Finding, RuledOut, Steps
from workbench.findings.rule import Rule, Tables

OWN_SHARE_WARNING = 0.07  # the budget is 5 %; a first compilation in a short run may go a little beyond
SLOWDOWN_WARNING = 0.05
COST_SHARE_WARNING = 0.005  # of the training time: less is not worth a change
BUSY_SHARE = 0.9


def find_evaluation_interference(
    training_steps: pd.DataFrame,
    evals: pd.DataFrame | None = None,
    events: pd.DataFrame | None = None,
    telemetry: pd.DataFrame | None = None,
) -> list[Finding]:
    """Findings on evaluations inside the training that take more than their budget, and on slowed-down steps.

    Args:
        training_steps: table `training_steps`.
        evals: table `evals`, for evaluations by other processes.
        events: table `events`, for evaluations inside the training.
        telemetry: table `telemetry`, to say what was contended for.
    """
    windows = evaluation_windows(evals, events)
    cost = evaluation_cost(training_steps, windows).set_index("who")
    steps = max(steps_told(training_steps), 1)
    found = []
    if OWN in cost.index and cost.loc[OWN, "cost_share"] >= OWN_SHARE_WARNING:
        found.append(_inside(cost.loc[OWN], steps))
    if OTHER in cost.index:
        row = cost.loc[OTHER]
        slow = row["slowdown_share"] >= SLOWDOWN_WARNING and row["low"] > 0
        if slow and row["cost_share"] >= COST_SHARE_WARNING:
            found.append(_outside(row, steps, _host_use(telemetry, windows)))
    return found


def _inside(row: pd.Series, steps: int) -> Finding:
    return Finding(
        cause="evaluation_interference",
        sub_cause="inline_over_budget",
        playbook="T2",
        severity="warning",
        confidence="high",
        title=f"{row['windows']:.0f} evaluations inside the training took {row['cost_share']:.1%} of its time.",
        fix="Use InlineEval, which keeps to a budget; evaluate fewer samples or less often, and leave full evaluations "
        "to `workbench watch`.",
        source="evaluation events over the rest of the training time; the usual budget is 5 %",
        saves_us_per_step=float(row["cost_us"]) / steps,
        evidence=(
            Evidence(fact="time in evaluations", value=float(row["cost_us"]) / 1e6, unit="s", table="events"),
            Evidence(fact="share of the training time", value=float(row["cost_share"]), unit="share"),
        ),
    )


def _outside(row: pd.Series, steps: int, use: dict[str, float]) -> Finding:
    busy = use.get("inside", 0.0) >= BUSY_SHARE > use.get("outside", 1.0)
    facts = [
        Evidence(fact="step time while evaluations ran", value=float(row["inside_us"]), unit="us",
                 table="training_steps"),
        Evidence(fact="step time around them", value=float(row["outside_us"]), unit="us", table="training_steps"),
        Evidence(fact="steps inside", value=int(row["steps"]), unit="steps", where=f"{row['windows']:.0f} evaluations"),
        Evidence(fact="cost", value=float(row["cost_share"]), unit="share of the training time"),
        *(Evidence(fact=f"use of the cores {k}", value=v, unit="share", table="telemetry") for k, v in use.items()),
    ]  # fmt: skip
    return Finding(
        cause="evaluation_interference",
        sub_cause="host_busy" if busy else None,
        playbook="T2",
        severity="warning",
        confidence="high" if row["low"] >= SLOWDOWN_WARNING else "medium",
        title=f"Steps take {row['slowdown_share']:.0%} longer ({row['low']:.0%} to {row['high']:.0%}) while "
        f"evaluations run beside the training; that costs {row['cost_share']:.1%} of its time.",
        fix="Evaluate on another host or card, or with fewer threads and lower priority "
        "(`python -m workbench.probes.evaluate RUN --checkpoint FILE --threads 1`).",
        source="medians inside evaluation windows against the steps around them, t interval over blocks of steps",
        steps=Steps(first=int(row["first_step"])),
        saves_us_per_step=float(row["cost_us"]) / steps,
        evidence=tuple(facts),
        rules_out=(RuledOut(cause="step_time_drift", because="steps before and behind the windows are as fast"),),
    )


def _host_use(telemetry: pd.DataFrame | None, windows: pd.DataFrame) -> dict[str, float]:
    """Mean use of the host's cores inside and outside the windows of other processes."""
    if telemetry is None:
        return {}
    use = telemetry[(telemetry["metric"] == "host_cpu_share") & telemetry["time_ns"].notna()]
    inside = pd.Series(False, index=use.index)
    for window in windows[windows["who"] == OTHER].itertuples():
        inside |= use["time_ns"].between(window.start_ns, window.end_ns)
    if not inside.any() or inside.all():
        return {}
    return {"inside": float(use.loc[inside, "value"].mean()), "outside": float(use.loc[~inside, "value"].mean())}


def _find(tables: Tables) -> list[Finding]:
    return find_evaluation_interference(
        tables["training_steps"], tables.get("evals"), tables.get("events"), tables.get("telemetry")
    )


RULES: tuple[Rule, ...] = (
    Rule(
        causes=("evaluation_interference",),
        needs=("training_steps",),
        uses=("evals", "events", "telemetry"),
        find=_find,
    ),
)
