"""Two runs of one job -> a slowdown beyond noise, the one thing that changed, and the operators that it shows in."""

from __future__ import annotations

import re

import pandas as pd

from workbench.analyses.version_change import Slower, changed_items, is_other_job, operator_changes, slower
from workbench.findings.finding import Confidence, Evidence, Finding, RuledOut, Severity
from workbench.findings.recompute_change import find_recompute_change, of_recomputation
from workbench.findings.rule import Rule, Tables

CHANGE_LEAST = 0.03
CHANGE_CRITICAL = 0.20
SAME_LOSS = 0.02
LISTED = 8
_ATTENTION = re.compile(r"attention|flash", re.IGNORECASE)
SOURCE = "block medians of steady steps, the same settings but one, operator tables; thresholds ours"


def find_version_regression(tables: Tables) -> list[Finding]:
    """One finding if the later of two runs of one job is slower than noise allows.

    Args:
        tables: of all runs: `training_steps` with the column `run`, `sources`, and where known `settings` (what
            changed) and `kernel_totals` (operators of both).
    """
    steps = tables["training_steps"]
    first, last = int(steps["run"].min()), int(steps["run"].max())
    if first == last:
        return []
    before, after = steps[steps["run"] == first], steps[steps["run"] == last]
    change = slower(before, after)
    sources = {0: _names(before), 1: _names(after)}
    items = changed_items(tables.get("settings"), sources)
    if change is None or not change.is_real or change.change_share < CHANGE_LEAST or is_other_job(before, after, items):
        return []
    if of_recomputation(items):
        return find_recompute_change(change, items, tables, sources)
    operators = operator_changes(tables.get("kernel_totals"), tables["sources"], sources)
    return [_finding(change, items, operators)]


def _names(steps: pd.DataFrame) -> list[str]:
    return [str(s) for s in steps["source"].dropna().unique()]


def _finding(change: Slower, items: pd.DataFrame | None, operators: pd.DataFrame | None) -> Finding:
    versions = items[items["is_version"]] if items is not None else None
    one = items is not None and versions is not None and len(items) == 1 and len(versions) == 1
    same_loss = not change.loss_share > SAME_LOSS
    is_setting = versions is not None and versions.empty
    confidence: Confidence = "high" if one and same_loss else "low" if is_setting else "medium"
    severity: Severity = "critical" if change.change_share >= CHANGE_CRITICAL else "warning"
    what = _what(items)
    return Finding(
        cause="version_regression",
        sub_cause=_sub_cause(operators) if not is_setting else "setting_changed",
        playbook="T10",
        severity="info" if confidence == "low" else severity,
        confidence=confidence,
        title=f"The later run has {-change.throughput_share:.1%} less throughput ({_times(change)}){what}.",
        fix=_fix(items, operators),
        source=SOURCE,
        saves_us_per_step=change.after_us - change.before_us if change.per == "step" else None,
        evidence=(*_time_facts(change), *_item_facts(items), *_operator_facts(change, operators)),
        rules_out=_ruled_out(change, operators),
    )


def _times(change: Slower) -> str:
    if change.per == "step":
        return f"{change.before_us / 1e3:,.0f} to {change.after_us / 1e3:,.0f} ms per step"
    return f"{change.before_us:,.3g} to {change.after_us:,.3g} us per {change.per}"


def _what(items: pd.DataFrame | None) -> str:
    if items is None or items.empty:
        return ""
    if len(items) == 1:
        row = items.iloc[0]
        return f"; all that changed is {row['name']}: {row['before']} to {row['after']}"
    return f"; changed are {', '.join(items['name'][:LISTED])}"


def _sub_cause(operators: pd.DataFrame | None) -> str | None:
    if operators is None:
        return None
    gone = operators[operators["change"] == "gone"]
    if len(gone) and gone["op_type"].str.contains(_ATTENTION).any() and (operators["change"] == "new").any():
        return "attention_left_fused_kernel"
    if len(gone) and (operators["change"] == "new").any():
        return "operators_replaced"
    return "operators_slower" if (operators["change"] == "slower").any() else None


def _fix(items: pd.DataFrame | None, operators: pd.DataFrame | None) -> str:
    old = "the old version"
    if items is not None and len(items) == 1:
        old = f"{items['name'].iloc[0]} {items['before'].iloc[0]}"
    how = {
        "attention_left_fused_kernel": "choose the fused or causal attention explicitly, and check that the mask is "
        "needed for this length",
        "operators_replaced": "choose the fused operators that are gone explicitly",
    }.get(_sub_cause(operators) or "", "report the operators that became slower")
    return f"Pin {old}, or {how}; keep a benchmark of 50 steps with an operator table per release."


def _time_facts(change: Slower) -> tuple[Evidence, ...]:
    facts = [
        Evidence(fact="change of the throughput", value=change.throughput_share, unit="share", table="training_steps"),
        Evidence(fact=f"change of the {change.per} time", value=change.change_share, unit="share",
                 table="training_steps"),
        Evidence(fact=f"longer {change.per}", value=change.after_us - change.before_us, unit="us",
                 table="training_steps"),
        Evidence(fact="spread inside a run", value=change.spread_share, unit="share", table="training_steps",
                 where=f"{change.steps} steady steps, block medians"),
    ]  # fmt: skip
    for name, value in (("losses", change.loss_share), ("gradient norms", change.norm_share)):
        if value == value:
            facts.append(Evidence(fact=f"difference of the {name}", value=value, unit="share", table="training_steps"))
    return tuple(facts)


def _item_facts(items: pd.DataFrame | None) -> tuple[Evidence, ...]:
    if items is None:
        how = "put a CSV with the columns item, before, after beside the logs"
        return (Evidence(fact=f"not known: what changed between the runs; {how}"),)
    changed = tuple(
        Evidence(fact=f"changed: {r.name_}", value=f"{r.before} to {r.after}", table="settings")
        for r in items.rename(columns={"name": "name_"}).head(LISTED).itertuples()
    )
    same = int(items.attrs.get("same", 0))
    return (*changed, Evidence(fact="settings that did not change", value=same, table="settings"))


def _operator_facts(change: Slower, operators: pd.DataFrame | None) -> tuple[Evidence, ...]:
    if operators is None:
        return (Evidence(fact="not known: the operators of both runs; profile a few steps of each (op_statistic.csv)"),)
    facts = []
    for word in ("gone", "new"):
        rows = operators[operators["change"] == word]
        column = "before_us" if word == "gone" else "after_us"
        if len(rows):
            names = ", ".join(rows["op_type"][:LISTED])
            facts.append(Evidence(fact=f"operators that are {word}: {names}", value=float(rows[column].sum()),
                                  unit="us", table="kernel_totals"))  # fmt: skip
    moved = operators[operators["change"].isin(["gone", "new"])]
    kept = operators[~operators["change"].isin(["gone", "new"])]
    longer = change.after_us - change.before_us
    if len(moved):
        delta = float(moved["delta_us"].sum())
        facts.append(Evidence(fact="new operators beyond those that are gone", value=delta, unit="us",
                              table="kernel_totals"))  # fmt: skip
        if change.per == "step":
            facts.append(Evidence(fact="of the longer step", value=delta / longer, unit="share (one step profiled)"))
    if len(kept):
        largest = float((kept["delta_us"].abs() / kept["before_us"]).max())
        facts.append(Evidence(fact=f"largest change of the {len(kept)} other types", value=largest, unit="share",
                              table="kernel_totals"))  # fmt: skip
    return tuple(facts)


def _ruled_out(change: Slower, operators: pd.DataFrame | None) -> tuple[RuledOut, ...]:
    ruled = []
    if change.loss_share <= SAME_LOSS:
        ruled.append(RuledOut(cause="loss_changed", because=f"the losses differ by {change.loss_share:.2%} only"))
    if operators is not None and (operators["change"] == "same").any():
        same = int((operators["change"] == "same").sum())
        because = f"{same} types of operators take as long as before"
        ruled += [RuledOut(cause=c, because=because) for c in ("device_fault", "data_starved")]
    return tuple(ruled)


RULES: tuple[Rule, ...] = (
    Rule(
        causes=("version_regression", "recompute_overhead"),
        needs=("training_steps",),
        uses=("settings", "kernel_totals", "log_messages"),
        all_runs=True,
        find=find_version_regression,
    ),
)
