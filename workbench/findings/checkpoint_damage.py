"""Checkpoints that are damaged, half-written or lack shards, by the files that lie there and by what logs say."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pandas as pd

from workbench.analyses.checkpoint_damage import checkpoint_failures, checkpoints
from workbench.findings.finding import Culprit, Evidence, Finding, RuledOut, Severity, Steps
from workbench.findings.rule import Rule, Tables

LISTED = 8
KEEP = (
    "save under a temporary name and rename it when it is whole (MindSpore does so by itself), wait for asynchronous "
    "saves before the job ends, check the free disk space, and keep the last two"
)
WHEN = "10 minutes after its last change, or when another follows a minute later"
SOURCE = f"structure of the checkpoint files that lie there; a file is judged {WHEN}"


def find_checkpoint_corrupt(tables: Tables, *, now_ns: int | None = None) -> list[Finding]:
    """Findings on checkpoints that nobody can resume from: one on the files, one on what the logs say.

    Args:
        tables: `checkpoint_files`, `log_messages`, each if it is there.
        now_ns: time of the look, ns since epoch; now by default.
    """
    found = []
    if "checkpoint_files" in tables:
        all_ = checkpoints(tables["checkpoint_files"], now_ns=time.time_ns() if now_ns is None else now_ns)
        broken = all_[all_["is_settled"] & ((all_["damaged"] > 0) | all_["missing"].map(len).gt(0))]
        if len(broken):
            found.append(_of_files(all_, broken))
    if "log_messages" in tables:
        failures = checkpoint_failures(tables["log_messages"])
        if len(failures):
            found.append(_of_logs(failures))
    return found


def _of_files(all_: pd.DataFrame, broken: pd.DataFrame) -> Finding:
    newest = broken.iloc[-1]
    whole = _whole(all_, newest)
    is_last = not all_[all_["series"] == newest["series"]]["modified_ns"].gt(newest["modified_ns"]).any()
    severity: Severity = "critical" if whole is None else "warning"
    more = f"; {len(broken) - 1} more are damaged" if len(broken) > 1 else ""
    step = None if pd.isna(newest["step"]) else int(newest["step"])
    return Finding(
        cause="checkpoint_corrupt",
        sub_cause=newest["damage"] if newest["damaged"] else "shards_missing",
        playbook="E7",
        severity=severity,
        confidence="high" if newest["damaged"] else "medium",
        title=f"{'The last checkpoint' if is_last else 'Checkpoint'} {_named(newest)} {_what(newest)}{more}; "
        f"{'no other checkpoint is whole' if whole is None else 'the last whole one is ' + _named(whole)}.",
        fix=_fix(newest, whole),
        source=SOURCE,
        culprit=Culprit(rank=_rank(newest["shard"])),
        steps=Steps(first=step, last=step),
        evidence=tuple(_file_facts(broken, newest, whole)),
        rules_out=(RuledOut(cause="being saved", because=f"it is judged {WHEN}"),),
    )


def _whole(all_: pd.DataFrame, broken: Any) -> Any | None:
    """The last whole checkpoint, of the same series where it has one; None where nothing is whole."""
    good = all_[(all_["damaged"] == 0) & all_["missing"].map(len).eq(0)]
    own = good[good["series"] == broken["series"]]
    return own.iloc[-1] if len(own) else good.iloc[-1] if len(good) else None


def _named(row: Any) -> str:
    step = "" if pd.isna(row["step"]) else f" (step {int(row['step'])})"
    return f"{row['checkpoint']}{step}"


def _what(row: Any) -> str:
    if not row["damaged"]:
        return f"lacks {len(row['missing'])} shard(s): {', '.join(row['missing'][:LISTED])}"
    of = f" in {row['damaged']} of its {row['files']} files" if row["files"] > 1 else ""
    return f"is damaged{of}: {str(row['problem']).rstrip('.')}"


def _fix(newest: Any, whole: Any | None) -> str:
    start = "Restore it from a copy, or start anew" if whole is None else f"Resume from {_named(whole)}"
    return f"{start}, move {newest['file'] or newest['checkpoint']} away so that nothing resumes from it; {KEEP}."


def _rank(shard: object) -> int | None:
    match = re.fullmatch(r"rank_(\d+)", str(shard))
    return int(match[1]) if match else None


def _file_facts(broken: pd.DataFrame, newest: Any, whole: Any | None) -> Iterator[Evidence]:
    for row in broken.iloc[::-1].head(LISTED).to_dict("records"):
        where = row["file"] or row["checkpoint"]
        yield Evidence(fact=f"{_named(row)}: {_what(row)}", value=int(row["size_bytes"]), unit="B found",
                       table="checkpoint_files", where=where)  # fmt: skip
    if newest["damaged"] and not pd.isna(newest["least_bytes"]):
        yield Evidence(fact="size that the file would have at least", value=int(newest["least_bytes"]), unit="B",
                       table="checkpoint_files", where=newest["file"])  # fmt: skip
    if newest["damaged"] and newest["whole_bytes"] == newest["whole_bytes"]:
        yield Evidence(fact="size of whole files of the series", value=int(newest["whole_bytes"]), unit="B",
                       table="checkpoint_files", where="median")  # fmt: skip
    if whole is None:
        return
    yield Evidence(fact="last whole checkpoint", value=_named(whole), table="checkpoint_files")
    if not pd.isna(newest["step"]) and not pd.isna(whole["step"]) and newest["step"] > whole["step"]:
        yield Evidence(fact="steps to train again", value=int(newest["step"] - whole["step"]), unit="steps",
                       table="checkpoint_files")  # fmt: skip


def _of_logs(failures: pd.DataFrame) -> Finding:
    """The finding on lines of logs; a read that failed for sure leads, else a save."""
    order = failures.assign(lead=(failures["what"] == "read") & failures["is_sure"])
    lead = order.sort_values(["lead", "is_sure"], ascending=False, kind="stable").iloc[0]
    read = lead["what"] == "read"
    file = "A checkpoint" if pd.isna(lead["checkpoint"]) else f"Checkpoint {lead['checkpoint']}"
    if read:
        title = f"{file} could not be read: {_shown(lead['text'])}."
        fix = f"Resume from the checkpoint before it, and see whether the file is whole (size, checksum); {KEEP}."
    else:
        why = "the disk is full" if lead["is_full"] else _shown(lead["text"])
        title = f"{file} could not be written: {why}; what lies there is half-written."
        fix = f"Free disk space, save again and remove the half-written file; {KEEP}."
    step = None if pd.isna(lead["step"]) else int(lead["step"])
    return Finding(
        cause="checkpoint_corrupt",
        sub_cause="read_failed" if read else "disk_full" if lead["is_full"] else "save_failed",
        playbook="E7",
        severity="critical" if read and lead["is_sure"] else "warning",
        confidence="high" if lead["is_sure"] else "medium",
        title=title,
        fix=fix,
        source="messages of MindSpore, safetensors and torch on reading and saving",
        culprit=Culprit(rank=None if pd.isna(lead["rank_id"]) or len(failures) > 1 else int(lead["rank_id"])),
        steps=Steps(first=step, last=step),
        evidence=tuple(_line_facts(failures)),
    )


def _line_facts(failures: pd.DataFrame) -> Iterator[Evidence]:
    for row in failures.head(LISTED).itertuples():
        fact = "reading a checkpoint failed" if row.what == "read" else "saving a checkpoint failed"
        yield Evidence(fact=fact, value=_shown(row.text), table="log_messages", where=f"{row.source}, line {row.line}")
    if not failures["is_sure"].any():
        yield Evidence(
            fact="not known: whether the file itself is damaged, or could only not be accessed; diagnose the run where "
            "its checkpoints lie, or load the file by hand"
        )
    if failures["checkpoint"].isna().all():
        yield Evidence(fact="not known: which file it is; log the name before loading and saving")


def _shown(text: object) -> str:
    return str(text).strip().rstrip(".")[:160]


RULES: tuple[Rule, ...] = (
    Rule(
        causes=("checkpoint_corrupt",),
        needs=(),
        needs_any=("checkpoint_files", "log_messages"),
        uses=("checkpoint_files", "log_messages"),
        find=find_checkpoint_corrupt,
    ),
)
