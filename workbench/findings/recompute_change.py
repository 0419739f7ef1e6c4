"""Two runs of one job that differ in recomputation only -> its cost, the memory it saves, whether that is needed."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from workbench.analyses.log_memory import FAILURES
from workbench.analyses.memory_room import memory_room
from workbench.analyses.version_change import Slower
from workbench.findings.finding import Confidence, Evidence, Finding, RuledOut, Severity
from workbench.findings.recompute import COST_SHARE_LEAST, GIB, HOW
from workbench.findings.rule import Tables
from workbench.findings.stage_memory import NEAR_SHARE

CHANGE_CRITICAL = 0.20
SAME_LOSS = 0.02
SOURCE = "block medians of steady steps of two runs, the same settings but those of recomputation; thresholds ours"


def of_recomputation(items: pd.DataFrame | None) -> bool:
    """Whether all that changed between two runs are settings of recomputation."""
    return items is not None and len(items) > 0 and bool(items["name"].str.contains("recompute", case=False).all())


def find_recompute_change(
    change: Slower, items: pd.DataFrame, tables: Tables, sources: Mapping[int, list[str]]
) -> list[Finding]:
    """One finding if the later run is slower by what it recomputes, and the earlier one had memory left.

    Silent where the earlier run was near its limit or an allocation failed, and where the cost is small. Without a
    limit and a peak of the earlier run it is only told (info).

    Args:
        change: of a later run that is slower beyond noise.
        items: as `changed_items` returns; all of recomputation.
        tables: of all runs.
        sources: files of the earlier (0) and the later (1) run.
    """
    messages = tables.get("log_messages")
    failed = messages is not None and bool(messages["kind"].isin(FAILURES).any())
    if failed or change.change_share < COST_SHARE_LEAST:
        return []
    before, after = (_fullest(tables, sources[run]) for run in (0, 1))
    is_known = bool(pd.notna(before["room_bytes"]))
    if is_known and before["peak_bytes"] > NEAR_SHARE * before["limit_bytes"]:
        return []
    same_loss = not change.loss_share > SAME_LOSS
    confidence: Confidence = "high" if is_known and same_loss else "medium"
    severity: Severity = "critical" if change.change_share >= CHANGE_CRITICAL else "warning"
    what = ", ".join(f"{r.name_} {r.before} to {r.after}" for r in items.rename(columns={"name": "name_"}).itertuples())
    saves_us = change.after_us - change.before_us
    room = (
        f"the earlier run left {before['room_bytes'] / GIB:,.1f} GiB of {before['limit_bytes'] / GIB:,.1f} GiB unused"
        if is_known
        else "whether the memory that it saves is needed is not known"
    )
    return [
        Finding(
            cause="recompute_overhead",
            sub_cause="setting_changed",
            playbook="T9",
            severity=severity if is_known else "info",
            confidence=confidence,
            title=f"The later run takes {_time(change.after_us, change)} instead of {_time(change.before_us, change)}; "
            f"all that changed is recomputation ({what}), and {room}.",
            fix=f"Go back to {', '.join(items['name'] + ' ' + items['before'].astype(str))}, or recompute less: {HOW}.",
            source=SOURCE,
            saves_us_per_step=saves_us if change.per == "step" else None,
            evidence=(*_cost_facts(change, items), *_memory_facts(before, after)),
            rules_out=(RuledOut(cause="version_regression", because="no version changed, only recomputation did"),),
        )
    ]


def _time(value_us: float, change: Slower) -> str:
    return f"{value_us / 1e3:,.4g} ms per step" if change.per == "step" else f"{value_us:,.3g} us per {change.per}"


def _fullest(tables: Tables, files: list[str]) -> pd.Series:
    """Memory of the rank of a run that has least room, else the highest peak."""
    of_run = {
        name: tables[name][tables[name][column].isin(files)]
        for name, column in (("training_steps", "source"), ("log_messages", "file"))
        if name in tables
    }
    if "settings" in tables:
        of_run["settings"] = tables["settings"]
    room = memory_room(of_run, sorted(of_run["training_steps"]["rank_id"].unique()))
    return room.sort_values(["room_bytes", "peak_bytes"], ascending=[True, False]).iloc[0]


def _cost_facts(change: Slower, items: pd.DataFrame) -> tuple[Evidence, ...]:
    changed = tuple(
        Evidence(fact=f"changed: {r.name_}", value=f"{r.before} to {r.after}", table="settings")
        for r in items.rename(columns={"name": "name_"}).itertuples()
    )
    return (
        Evidence(fact=f"longer {change.per}", value=change.after_us - change.before_us, unit="us",
                 table="training_steps", where=f"{change.steps} steady steps, block medians"),
        Evidence(fact="spread inside a run", value=change.spread_share, unit="share", table="training_steps"),
        *changed,
        Evidence(fact="settings that did not change", value=int(items.attrs.get("same", 0)), table="settings"),
    )  # fmt: skip


def _memory_facts(before: pd.Series, after: pd.Series) -> tuple[Evidence, ...]:
    facts = [
        Evidence(fact=f"highest memory of the {name} run", value=float(row["peak_bytes"]) / GIB, unit="GiB",
                 table=str(row["peak_from"]), where=f"rank {row['rank_id']}")
        for name, row in (("earlier", before), ("later", after)) if pd.notna(row["peak_bytes"])
    ]  # fmt: skip
    if len(facts) == 2:
        saved = float(before["peak_bytes"] - after["peak_bytes"])
        facts.append(Evidence(fact="memory saved by recomputing", value=saved / GIB, unit="GiB"))
    if pd.isna(before["limit_bytes"]):
        how = "set max_device_memory, or keep the memory summary of the log"
        facts.append(Evidence(fact=f"not known: the limit of the memory; {how}"))
    else:
        facts.append(Evidence(fact="limit of the memory", value=float(before["limit_bytes"]) / GIB, unit="GiB",
                              where=str(before["limit_from"])))  # fmt: skip
    if pd.isna(before["peak_bytes"]):
        facts.append(Evidence(fact="not known: the memory of the earlier run; record device memory in both"))
    return tuple(facts)
