"""The checks of a playbook: the cause, not the cause, or cannot tell, of each cause; and the proof of a fix."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from workbench.analyses.recompute import SCOPED_LIKE
from workbench.errors import UnknownParameterError
from workbench.findings.diagnosis import Diagnosis, diagnose
from workbench.findings.evidence import EVIDENCE, GRAPH_OPERATORS, KINDS, Evidence
from workbench.findings.finding import CAUSES, Finding
from workbench.findings.playbooks import PLAYBOOKS
from workbench.findings.rule_tables import of_all_runs, run_tables
from workbench.findings.shown import fact_text, with_code
from workbench.run import Run, open_run
from workbench.tables import CHECKPOINT_FILES, TABLES

Word = Literal["the cause", "not the cause", "cannot tell"]
COLOURS: Mapping[Word, str] = {"the cause": "#b3261e", "not the cause": "#116329", "cannot tell": "#57606a"}
FACTS_SHOWN = 4


@dataclass(frozen=True)
class Recorded:
    """What there is to judge by: `table`, `table.column` and `table:kind` with values, ranks and jobs, the steps."""

    columns: frozenset[str]
    ranks: int = 1
    jobs: int = 1
    steps: tuple[int, int] | None = None


@dataclass(frozen=True)
class Examined:
    """A diagnosed run, and what was recorded of it."""

    run: Run
    diagnosis: Diagnosis
    recorded: Recorded


@dataclass(frozen=True, kw_only=True)
class Check:
    """Verdict on one cause: the word, a sentence with its numbers, and the finding where there is one."""

    cause: str
    verdict: Word
    because: str
    finding: Finding | None = None

    def __repr__(self) -> str:
        return f"{self.cause}: {self.verdict}. {self.because}"


class Checks(tuple[Check, ...]):
    """Checks that show themselves as coloured lines."""

    def __repr__(self) -> str:
        return "\n".join(map(repr, self))

    def _repr_html_(self) -> str:
        return "".join(map(_as_html, self))


@dataclass(frozen=True)
class Verdict:
    """What a playbook ends with: its checks, the causes found, and where to go on."""

    checks: Checks
    findings: tuple[Finding, ...]  # of the run, most costly first
    sentence: str

    def __repr__(self) -> str:
        return f"{self.sentence}\n{self.checks!r}"

    def _repr_html_(self) -> str:
        words: set[Word] = {c.verdict for c in self.checks}
        worst: Word = next((word for word in COLOURS if word in words), "cannot tell")
        return f"<p><b style='color:{COLOURS[worst]}'>{with_code(self.sentence)}</b></p>{self.checks._repr_html_()}"


def examine(run: Run | str | os.PathLike[str]) -> Examined:
    """Diagnose a run and see what was recorded of it.

    Raises:
        UnknownContentError: nothing at the path that a reader knows.
    """
    opened = run if isinstance(run, Run) else open_run(run, quiet=True)
    diagnosis = diagnose(opened)
    steps = diagnosis.coverage["steps"]
    return Examined(
        opened,
        diagnosis,
        Recorded(_columns(opened), max(1, len(opened.ranks)), _jobs(opened), tuple(steps) if steps else None),
    )


def check(diagnosis: Diagnosis, recorded: Recorded, cause: str) -> Check:
    """Whether `cause` is what is wrong.

    Args:
        diagnosis: of the run.
        recorded: what there was to judge by.
        cause: a word of `finding.CAUSES`.

    Returns:
        "the cause" where a finding of warning or above names it; "not the cause" where it is a symptom of another, too
        small to matter, or not found although enough was recorded; "cannot tell" with what is lacking, else, and where
        a finding says what it does not know.

    Raises:
        UnknownParameterError: there is no such cause.
    """
    if cause not in CAUSES:
        raise UnknownParameterError(f"There is no cause {cause!r}.", fix=f"use one of {', '.join(sorted(CAUSES))}")
    found = [f for f in diagnosis.causes if f.cause == cause]
    grave = [f for f in found if f.severity != "info"]
    if grave:
        return Check(cause=cause, verdict="the cause", because=_found(grave), finding=grave[0])
    if found:
        open_ = _unknown(found[0])
        word: Word = "cannot tell" if open_ else "not the cause"
        return Check(cause=cause, verdict=word, because=open_ or _minor(found[0]), finding=found[0])
    ruled = [(f, r.because) for f in diagnosis.causes for r in f.rules_out if r.cause == cause]
    if ruled:
        return Check(
            cause=cause, verdict="not the cause", because=f"{_sentence(ruled[0][1])} (told by {ruled[0][0].cause})"
        )
    return _not_found(cause, recorded)


def checks(examined: Examined, *causes: str) -> Checks:
    """Verdicts on several causes of an examined run, in the order given."""
    return Checks(check(examined.diagnosis, examined.recorded, cause) for cause in causes)


def conclude(examined: Examined, playbook: str) -> Verdict:
    """All checks of a playbook, the findings, and what to do next: the fix, or the playbook that goes on.

    Raises:
        UnknownParameterError: there is no such playbook.
    """
    if playbook not in PLAYBOOKS:
        raise UnknownParameterError(f"There is no playbook {playbook!r}.", fix=f"use one of {', '.join(PLAYBOOKS)}")
    made = checks(examined, *PLAYBOOKS[playbook].causes)
    grave = tuple(f for f in examined.diagnosis.causes if f.severity != "info")
    own = [f for f in grave if f.cause in PLAYBOOKS[playbook].causes]
    return Verdict(made, examined.diagnosis.causes, _next_step(playbook, made, own, grave))


def prove(faulty: Examined, fixed: Examined, playbook: str) -> Verdict:
    """Whether the causes that a playbook found in a run are gone in the run after the fix.

    Returns:
        Checks of the fixed run, of the causes that the faulty one had; the findings of the fixed run.
    """
    had = list(dict.fromkeys(c.cause for c in conclude(faulty, playbook).checks if c.verdict == "the cause"))
    after = checks(fixed, *had)
    new = [f for f in fixed.diagnosis.causes if f.severity != "info" and f.cause not in had]
    more = f" New in it: {', '.join(dict.fromkeys(f.cause for f in new))}." if new else " Nothing else was found in it."
    if not had:
        return Verdict(after, fixed.diagnosis.causes, "Nothing to prove: the first run has none of these causes.")
    open_ = [c.cause for c in after if c.verdict != "not the cause"]
    if not open_:
        words = f"Proven: {', '.join(had)} in {faulty.run.run_id}, gone in {fixed.run.run_id}.{more}"
    else:
        words = f"Not proven: {', '.join(open_)} is still there in {fixed.run.run_id}, or cannot be judged.{more}"
    return Verdict(after, fixed.diagnosis.causes, words)


def _next_step(playbook: str, made: Checks, own: Sequence[Finding], grave: Sequence[Finding]) -> str:
    if own:
        first = own[0]
        others = [f.cause for f in grave if f is not first]
        also = f" Also found: {', '.join(dict.fromkeys(others))}." if others else ""
        elsewhere = "" if first.playbook in (playbook, "none") else f" More on it: {_place(first.playbook)}."
        return f"The cause is {first.cause}: {first.title} Fix: {first.fix}{elsewhere}{also}"
    open_ = [c.cause for c in made if c.verdict == "cannot tell"]
    none = f"None of this playbook's causes{' can be judged' if len(open_) == len(made) else ''}"
    rest = f" Not judged, for want of evidence: {', '.join(open_)}." if open_ else ""
    if grave:
        return f"{none}. The run has another: {grave[0].title} Go on with {_place(grave[0].playbook)}.{rest}"
    return f"{none}, and nothing else is found.{rest}"


def _place(playbook: str) -> str:
    return f"{playbook}, troubleshoot/{PLAYBOOKS[playbook].notebook}"


def _found(grave: Sequence[Finding]) -> str:
    first = grave[0]
    more = f" And {len(grave) - 1} more of its kind." if len(grave) > 1 else ""
    gain = "" if first.saves_us_per_step is None else f" It costs {first.saves_us_per_step / 1e3:,.4g} ms per step."
    return f"{first.title}{gain}{more} ({first.confidence} confidence)"


def _minor(finding: Finding) -> str:
    by = next((e.value for e in finding.evidence if e.fact == "explained by"), None)
    if by is not None:
        return f"{finding.title} That is a symptom of {by}."
    return f"{finding.title} That is worth knowing, but too little, or too uncertain, to be what is wrong."


def _unknown(finding: Finding) -> str:
    """What a finding does not know of what it sees; "" where it lacks nothing, or another cause explains it."""
    facts = [e.fact for e in finding.evidence]
    lacking = [_sentence(fact) for fact in facts if fact.startswith("not known:")]
    return "" if "explained by" in facts or not lacking else " ".join((finding.title, *lacking))


def _not_found(cause: str, recorded: Recorded) -> Check:
    ways = EVIDENCE[cause]
    whole = [way for way in ways if not _lacks(way, recorded)]
    if not whole:
        nearest = min(ways, key=lambda way: len(_lacks(way, recorded)))
        return Check(cause=cause, verdict="cannot tell", because=f"Needs {' and '.join(_lacks(nearest, recorded))}.")
    looked = sorted({name.replace(":", " of kind ") for way in whole for name in (*way.columns, *way.kinds)})
    steps = "" if recorded.steps is None else f", steps {recorded.steps[0]} to {recorded.steps[1]}"
    where = f"{', '.join(looked)} of {recorded.ranks} rank(s){steps}"
    return Check(cause=cause, verdict="not the cause", because=f"No sign of it in {where}.")


def _lacks(way: Evidence, recorded: Recorded) -> list[str]:
    """What is missing for one way to judge, each with how to collect it."""
    lacking = [
        f"{'column' if '.' in name else 'table'} {name} ({TABLES[name.split('.')[0]].fix})"
        for name in way.columns
        if name not in recorded.columns
    ]
    lacking += [KINDS[kind] for kind in way.kinds if kind not in recorded.columns]
    if recorded.ranks < way.ranks:
        lacking.append("the files of several ranks: name the folder that holds all of them")
    if recorded.jobs < way.jobs:
        lacking.append("two jobs to compare: put the logs before and after into one folder")
    return lacking


def _columns(run: Run) -> frozenset[str]:
    """Names in EVIDENCE that the run has values of, and kinds that it has rows of."""
    wanted = {name for ways in EVIDENCE.values() for way in ways for name in way.columns}
    there = {name for name in wanted if "." not in name and run.has(name)}
    there |= set(run_tables(run, [CHECKPOINT_FILES.name]))
    for table in filter(run.has, {name.split(".")[0] for name in wanted if "." in name}):
        names = [name.split(".")[1] for name in wanted if name.startswith(f"{table}.")]
        counts = run.sql(f"SELECT {', '.join(f'count({n}) AS {n}' for n in names)} FROM {table}").iloc[0]
        there |= {f"{table}.{n}" for n in names if counts[n] > 0}
    if run.has("kernels") and len(run.sql(f"SELECT 1 FROM kernels WHERE name LIKE '{SCOPED_LIKE}' LIMIT 1")):
        there.add(GRAPH_OPERATORS)
    for table in filter(run.has, sorted({kind.split(":")[0] for kind in KINDS if kind != GRAPH_OPERATORS})):
        seen = run.sql(f"SELECT DISTINCT kind FROM {table}")["kind"]
        there |= set(KINDS) & {f"{table}:{kind}" for kind in seen}
    return frozenset(there)


def _jobs(run: Run) -> int:
    taken = run_tables(run, ["training_steps"])
    numbered = of_all_runs(taken, run.sources).get("training_steps")
    return 1 if numbered is None else max(1, int(numbered["run"].nunique()))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _as_html(made: Check) -> str:
    facts = (
        ""
        if made.finding is None
        else "".join(f"<li>{html.escape(fact_text(e))}</li>" for e in made.finding.evidence[:FACTS_SHOWN])
    )
    shown = f"<ul style='margin:2px 0 0 0'>{facts}</ul>" if facts and made.verdict == "the cause" else ""
    colour = COLOURS[made.verdict]
    return (
        f"<div style='border-left:4px solid {colour};padding:2px 10px;margin:4px 0;line-height:1.4'>"
        f"<b style='color:{colour}'>{made.verdict}</b> <code>{html.escape(made.cause)}</code> "
        f"<span>{with_code(made.because)}</span>{shown}</div>"
    )
