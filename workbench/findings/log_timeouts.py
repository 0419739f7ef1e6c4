"""Time-outs of collectives in logs -> the rank that did not take part, and what it was doing."""

from __future__ import annotations

import pandas as pd

from workbench.analyses.log_timeouts import rank_reports, report_limit_s
from workbench.findings.finding import Confidence, Culprit, Evidence, Finding, RuledOut, Steps
from workbench.findings.rule import Rule

REPORTING_LEAST = 0.5  # of the ranks: launchers end the other ranks when one fails, so a few reports tell little
SPREAD_SHARE = 0.1  # of the limit: ranks that were in step report within seconds
TEXT = 160
FIXES = {
    "data": "Repair the data path of rank {rank}: its files, its worker processes, its host's memory and disk",
    "out_of_memory": "Reduce the memory of rank {rank}; its allocation failed before the others timed out",
    "crashed": "Mend the exception of rank {rank}; the time-outs of the others follow from it",
    "saving": "Look at where rank {rank} saves its checkpoint: it began to save and did not come back",
    "compiling": "Look at why rank {rank} still compiles: other shapes than its peers, or no compile cache",
    "evaluating": "Let all ranks evaluate the same number of batches; rank {rank} evaluated alone",
    "error": "Mend the error of rank {rank}; the time-outs of the others follow from it",
}
HANGS = "Look at the process of rank {rank} while it hangs (py-spy dump, host memory, disk, its input files)"
AFTER = "; add a heartbeat per rank. Neither a longer time-out nor a check of cables comes first."
SOURCE = "error guides of CANN for EI0002 and EI0006: the rank without a report is the suspect; thresholds ours"


def find_rank_missing_collective(
    log_messages: pd.DataFrame, training_steps: pd.DataFrame | None = None, settings: pd.DataFrame | None = None
) -> list[Finding]:
    """One finding if ranks report a time-out of a collective.

    Some ranks silent: they did not take part. All report, far apart in time: the last one was late. All report at once:
    no rank is missing by its log, and that is said.

    Args:
        log_messages: table `log_messages` of all ranks.
        training_steps: table `training_steps`, or None.
        settings: table `settings`, or None.
    """
    ranks = rank_reports(log_messages, training_steps, settings)
    reporting = ranks[ranks["reported"].astype(bool)]
    if reporting.empty or len(ranks) < 2:
        return []
    times = reporting["report_ns"].dropna()
    spread_s = float(times.max() - times.min()) / 1e9 if len(times) > 1 else float("nan")
    limit_s = report_limit_s(log_messages, settings)
    facts = _facts(ranks, reporting, spread_s, limit_s)
    if len(reporting) < len(ranks):
        return [_missing(ranks, reporting, facts, in_step=not spread_s > SPREAD_SHARE * limit_s)]
    if spread_s > SPREAD_SHARE * limit_s:
        return [_late(reporting, spread_s, limit_s, facts)]
    return [_all_report(ranks, facts)]


def _facts(ranks: pd.DataFrame, reporting: pd.DataFrame, spread_s: float, limit_s: float) -> tuple[Evidence, ...]:
    silent = ranks[~ranks["reported"].astype(bool)]
    names = ", ".join(str(r) for r in silent["rank_id"]) or "none"
    return (
        Evidence(fact="ranks that report a time-out", value=len(reporting), unit=f"of {len(ranks)} ranks",
                 table="log_messages"),
        Evidence(fact="silent ranks", value=names, table="log_messages"),
        Evidence(fact="time between the first and the last report", value=spread_s, unit="s", table="log_messages"),
        Evidence(fact="limit after which a collective times out", value=limit_s, unit="s", table="settings"),
    )  # fmt: skip


def suspect(ranks: pd.DataFrame) -> pd.Series | None:
    """The one silent rank that stands out: alone, by what it did last, by an earlier step, or by who waits for it."""
    silent = ranks[~ranks["reported"].astype(bool)]
    if len(silent) == 1:
        return silent.iloc[0]
    behind = silent["last_step"] < ranks["last_step"].max()
    marks = (
        silent["activity"].notna(),
        behind.fillna(False).astype(bool),
        (silent["named_by"] > 0) & (silent["named_by"] == silent["named_by"].max()),
    )
    for mark in marks:
        if int(mark.sum()) == 1:
            return silent[mark].iloc[0]
    return None


def _missing(ranks: pd.DataFrame, reporting: pd.DataFrame, facts: tuple[Evidence, ...], *, in_step: bool) -> Finding:
    silent = ranks[~ranks["reported"].astype(bool)]
    one = suspect(ranks)
    most = len(reporting) >= REPORTING_LEAST * len(ranks)
    confidence: Confidence = "high" if one is not None and most else "medium" if one is not None or most else "low"
    if one is None:
        who = f"Ranks {', '.join(str(r) for r in silent['rank_id'])} do"
        return _finding(f"{who} not report the time-out that {len(reporting)} of {len(ranks)} ranks report: they did "
                        "not take part in the collective.", confidence, facts,
                        fix="Look at the processes and hosts of the silent ranks first; collect their logs" + AFTER,
                        in_step=in_step)  # fmt: skip
    rank = int(one["rank_id"])
    activity = None if pd.isna(one["activity"]) else str(one["activity"])
    doing = f"; its last lines tell of {activity.replace('_', ' ')}" if activity else ""
    title = f"Rank {rank} did not take part in a collective: {len(reporting)} of {len(ranks)} ranks report a time-out"
    step = None if pd.isna(one["last_step"]) else int(one["last_step"])
    return _finding(
        f"{title}, it does not" + (f", after step {step}" if step is not None else "") + f"{doing}.",
        confidence if one["has_log"] else "medium",
        facts + _suspect_facts(one, ranks),
        fix=(FIXES[activity] if activity else HANGS).format(rank=rank) + AFTER,
        sub_cause=activity,
        culprit=Culprit(rank=rank),
        steps=Steps(first=step, last=step),
        in_step=in_step,
    )


def _suspect_facts(one: pd.Series, ranks: pd.DataFrame) -> tuple[Evidence, ...]:
    rank, where = int(one["rank_id"]), f"rank {int(one['rank_id'])}"
    if not one["has_log"]:
        return (Evidence(fact=f"not known: what rank {rank} did last; its log is missing (worker_{rank}.log)"),)
    facts = [
        Evidence(fact=f"last step of rank {rank}", value=None if pd.isna(one["last_step"]) else int(one["last_step"]),
                 unit=f"(the others: {ranks['last_step'].max()})", table="training_steps", where=where),
        Evidence(fact=f"ranks that say they wait for rank {rank}", value=int(one["named_by"]), unit="ranks",
                 table="log_messages"),
    ]  # fmt: skip
    if pd.notna(one["activity"]):
        after_s = (float(one["activity_ns"]) - float(one["last_step_ns"])) / 1e9
        facts.append(
            Evidence(fact=f"last activity of rank {rank}: {str(one['activity_text'])[:TEXT]}", value=after_s,
                     unit="s after its last step", table="log_messages", where=where)
        )  # fmt: skip
    elif pd.notna(one["last_text"]):
        facts.append(Evidence(fact=f"last line of rank {rank}", value=str(one["last_text"])[:TEXT], where=where))
    return tuple(facts)


def _late(reporting: pd.DataFrame, spread_s: float, limit_s: float, facts: tuple[Evidence, ...]) -> Finding:
    last = reporting.loc[reporting["report_ns"].idxmax()]
    rank = int(last["rank_id"])
    return Finding(
        cause="rank_late",
        playbook="T4",
        severity="critical",
        confidence="medium",
        title=f"Rank {rank} came to a collective {spread_s:,.0f} s after the first rank, which had given up after "
        f"{limit_s:,.0f} s.",
        fix=f"Find what kept rank {rank} (compilation, loading, its data); where that is legitimate, set "
        f"HCCL_EXEC_TIMEOUT above {limit_s + spread_s:,.0f} s.",
        source=SOURCE,
        culprit=Culprit(rank=rank),
        evidence=facts,
        rules_out=(RuledOut(cause="rank_missing_collective", because="every rank reports the time-out"),),
    )


def _all_report(ranks: pd.DataFrame, facts: tuple[Evidence, ...]) -> Finding:
    return Finding(
        cause="rank_missing_collective",
        playbook="T4",
        severity="critical",
        confidence="low",
        title=f"All {len(ranks)} ranks timed out in a collective at the same time: by their logs none is missing.",
        fix="Collect the device logs of all ranks (ASCEND_PROCESS_LOG_PATH, on CUDA NCCL_DEBUG=INFO) and look for the "
        "first rank with an error; then check the links between hosts.",
        source=SOURCE,
        evidence=facts,
    )


def _finding(
    title: str, confidence: Confidence, facts: tuple[Evidence, ...], *, fix: str, in_step: bool,
    sub_cause: str | None = None, culprit: Culprit | None = None, steps: Steps | None = None,
) -> Finding:  # fmt: skip
    ruled = [RuledOut(cause="network_fault", because="the other ranks report the same wait, and the silent one none")]
    if in_step:
        because = "the reports lie far closer together than the limit: the ranks were in step"
        ruled.append(RuledOut(cause="raise_timeout_only", because=because))
    return Finding(
        cause="rank_missing_collective",
        sub_cause=sub_cause,
        playbook="T4",
        severity="critical",
        confidence=confidence,
        title=title,
        fix=fix,
        source=SOURCE,
        culprit=culprit or Culprit(),
        steps=steps or Steps(),
        evidence=facts,
        rules_out=tuple(ruled),
    )


RULES: tuple[Rule, ...] = (
    Rule(
        causes=("rank_missing_collective", "rank_late"),
        needs=("log_messages",),
        uses=("training_steps", "settings"),
        find=lambda t: find_rank_missing_collective(t["log_messages"], t.get("training_steps"), t.get("settings")),
    ),
)
