"""Run every rule that a run's tables allow, rank what they find, and say what the verdict rests on."""

from __future__ import annotations

import html
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import pandas as pd

from workbench.analyses.telemetry import step_times
from workbench.findings import (
    anomalous_samples,
    catalogue,
    checkpoint_damage,
    checkpoints,
    cluster,
    data_health,
    data_pipeline,
    data_queues,
    evaluation,
    generation,
    host_pauses,
    instability,
    interference,
    label_leak,
    layers,
    log_compiles,
    log_gaps,
    log_memory,
    log_timeouts,
    lr_schedule,
    memory,
    rank_waits,
    recompute,
    sampling,
    scaling,
    settings_mismatch,
    step_growth,
    step_time,
    step_trend,
    training,
    version_change,
)
from workbench.findings.finding import CONFIDENCES, SEVERITIES, Finding
from workbench.findings.jobs import told_jobs
from workbench.findings.joining import UNPROVEN, join
from workbench.findings.judged import Gap, gaps, unrecorded
from workbench.findings.playbooks import PLAYBOOKS
from workbench.findings.rule import Rule, Tables
from workbench.findings.rule_tables import of_all_runs, of_last_run, run_tables
from workbench.findings.shown import as_text, html_table
from workbench.findings.telemetry import with_physical_reasons
from workbench.overview import missing_html, notes_text, steps_text
from workbench.run import Run, open_run
from workbench.tables import CHECKPOINT_FILES, Note

__all__ = ["Diagnosis", "diagnose", "diagnosis_schema", "ranked", "run_tables"]

SCHEMA = 1
COSTS_THE_RUN = frozenset((*PLAYBOOKS["T1"].causes, *PLAYBOOKS["T5"].causes, "memory_leak")) - UNPROVEN
PROFILED = frozenset({"step_time", "kernels"})
BESIDE_THE_STEPS = frozenset({"events", "settings", "checkpoint_files"})  # without any other table they prove no health
CAUSE_FIELDS = ("cause", "sub_cause", "playbook", "severity", "confidence", "culprit", "steps", "saves_us_per_step",
                "saves_interval_us", "title", "fix", "evidence", "rules_out")  # fmt: skip


TOPICS = (  # modules of rules
    training,
    catalogue,
    data_pipeline,
    data_queues,
    step_time,
    host_pauses,
    step_trend,
    memory,
    log_memory,
    log_timeouts,
    scaling,
    cluster,
    recompute,
    data_health,
    sampling,
    evaluation,
    generation,
    layers,
    anomalous_samples,
    interference,
    checkpoints,
    checkpoint_damage,
    lr_schedule,
    label_leak,
    log_compiles,
    version_change,
    settings_mismatch,
    step_growth,
    rank_waits,
    log_gaps,
    instability,
)
RULES: tuple[Rule, ...] = tuple(rule for topic in TOPICS for rule in topic.RULES)


@dataclass(frozen=True)
class Diagnosis:
    """Ranked causes of a run, most costly first, and the coverage that the verdict rests on."""

    run: str
    coverage: Mapping[str, Any]
    causes: tuple[Finding, ...]
    notes: tuple[Note, ...] = ()  # what of the files could not be used
    unrecorded: tuple[str, ...] = ()  # what the recorded steps do not tell
    gaps: tuple[Gap, ...] = ()  # what can therefore not be judged
    jobs: tuple[str, ...] = ()  # which jobs there are, and which is judged, where it is not just one

    @property
    def exit_status(self) -> int:
        """0 if nothing is at warning or above, else 1; 2 if nothing is found and no table tells how the run went."""
        if self.is_blind:
            return 2
        return int(any(f.severity != "info" for f in self.causes))

    @property
    def is_blind(self) -> bool:
        """Whether nothing was found because there is nothing to find it in."""
        return not self.causes and not set(self.coverage["tables"]) - BESIDE_THE_STEPS

    def to_dict(self) -> dict[str, Any]:
        """The object that `workbench diagnose --json` prints: plain values, None for what is not a finite number."""
        causes = [{k: f.to_dict()[k] for k in CAUSE_FIELDS} for f in self.causes]
        missing = [*(gap.as_missing() for gap in self.gaps), *self.coverage["missing"]]
        coverage = {**self.coverage, "missing": missing}
        plain = _plain({"schema": SCHEMA, "run": self.run, "coverage": coverage, "causes": causes})
        assert isinstance(plain, dict)
        return plain

    def __repr__(self) -> str:
        notes = notes_text(self.notes)
        if not self.causes:
            return "\n".join([*self.jobs, f"{_healthy(self)} {_rests_on(self)}{_missing(self)}", *notes])
        lines = [as_text(finding, n) for n, finding in enumerate(self.causes, 1)]
        return "\n".join([*self.jobs, *lines, f"{_rests_on(self)}{_missing(self)}", *notes])

    def _repr_html_(self) -> str:
        head = _paragraphs(self.jobs)
        rests = _paragraphs([_rests_on(self), *notes_text(self.notes)])
        rests += missing_html(self.coverage["missing"])
        if not self.causes:
            colour = "#57606a" if self.gaps or self.is_blind else "#116329"
            return f"{head}<p><b style='color:{colour}'>{html.escape(_healthy(self))}</b></p>{rests}"
        return f"{head}{html_table(self.causes)}{rests}"


def diagnose(run: Run | str | os.PathLike[str], *, step: int | None = None, checkpoint: str | None = None) -> Diagnosis:
    """Ranked causes of what is wrong with a run; an empty list of causes means healthy, but for the `gaps`.

    Args:
        run: an opened run, or a path to open.
        step: look only at what had happened up to this training step.
        checkpoint: look only at evaluations up to this checkpoint's, by training step.

    Returns:
        The diagnosis; it shows itself as a table in Lab and as text elsewhere.

    Raises:
        UnknownParameterError: the run has no step up to `step`, or no such checkpoint.
        UnknownContentError: nothing at the path that a reader knows.
    """
    opened = run if isinstance(run, Run) else open_run(run, quiet=True)
    taken = run_tables(opened, [*_tables_of(RULES), "telemetry"], step=step, checkpoint=checkpoint)
    all_runs = of_all_runs(taken, opened.sources)
    last_run = of_last_run(all_runs)
    given = {True: all_runs, False: last_run}  # tables may be empty in the last run, and so not there
    rules = [rule for rule in RULES if rule.can_run(given[rule.all_runs])]
    found = [f for rule in rules for f in rule.find(given[rule.all_runs])]
    steps = last_run.get("training_steps")
    times = step_times(steps, last_run.get("kernels"))
    found = with_physical_reasons(found, last_run.get("telemetry"), times)
    looked_at = {name: taken[name] for name in _tables_of(rules) if name in taken}
    return Diagnosis(
        run=opened.run_id,
        coverage=_coverage(opened, looked_at, steps),
        causes=tuple(ranked(join(found))),
        notes=tuple(opened.notes),
        unrecorded=unrecorded(steps),
        jobs=told_jobs(all_runs),
        gaps=gaps(steps, has_profile=not PROFILED.isdisjoint(last_run)),
    )


def diagnosis_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of what `Diagnosis.to_dict` returns and `workbench diagnose --json` prints."""
    text = resources.files("workbench.findings").joinpath("diagnosis.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def ranked(findings: Sequence[Finding]) -> list[Finding]:
    """Findings by severity, then by what their fix gives back, then by confidence.

    Critical ones that have no price in time (a lost loss, a failed allocation) come first, and at each severity known
    defects of the training itself: they cost the run, where the others cost time.
    """

    def key(finding: Finding) -> tuple[int, float, int]:
        costs_run = finding.severity == "critical" or (finding.cause in COSTS_THE_RUN and finding.confidence != "low")
        priceless = math.inf if costs_run else 0.0
        saves = priceless if finding.saves_us_per_step is None else finding.saves_us_per_step
        return SEVERITIES.index(finding.severity), -saves, CONFIDENCES.index(finding.confidence)

    return sorted(findings, key=key)


def _coverage(run: Run, tables: Tables, steps: pd.DataFrame | None) -> dict[str, Any]:
    """The run's coverage, its steps and tables narrowed to those that rules looked at."""
    looked_at = {} if steps is None else {"steps": [int(steps["step"].min()), int(steps["step"].max())]}
    coverage = run.coverage()
    known = [*coverage["tables"], CHECKPOINT_FILES.name]  # which no run has: it is read for each diagnosis
    return coverage | looked_at | {"tables": [name for name in known if name in tables]}


def _tables_of(rules: Sequence[Rule]) -> list[str]:
    return sorted({name for rule in rules for name in (*rule.needs, *rule.uses)})


def _paragraphs(lines: Sequence[str]) -> str:
    return "".join(f"<p style='color:#57606a'>{html.escape(line)}</p>" for line in lines)


def _healthy(diagnosis: Diagnosis) -> str:
    if diagnosis.is_blind:
        return "Nothing could be checked: no file gave rows of a table that tells how the run went."
    if diagnosis.gaps:
        return f"Nothing found, but {_gaps(diagnosis)}."
    return "Nothing found: healthy as far as these tables show."


def _gaps(diagnosis: Diagnosis) -> str:
    return "; ".join(gap.sentence for gap in diagnosis.gaps)


def _rests_on(diagnosis: Diagnosis) -> str:
    coverage = diagnosis.coverage
    steps = steps_text(coverage["steps"]) if coverage["steps"] else "no training steps"
    beside = f" Beside that, {_gaps(diagnosis)}." if diagnosis.causes and diagnosis.gaps else ""
    return (
        f"This rests on {steps} of {len(coverage['ranks'])} rank(s) and {len(coverage['tables'])} tables "
        f"({', '.join(coverage['tables']) or 'none'})."
        + (f" Not recorded, so not judged: {', '.join(diagnosis.unrecorded)}." if diagnosis.unrecorded else "")
        + beside
    )


def _missing(diagnosis: Diagnosis) -> str:
    count = len(diagnosis.coverage["missing"])
    return f" {count} more tables would tell more: `workbench import` says what, and how to have them." if count else ""


def _plain(value: object) -> object:
    """Values that JSON knows: numbers that are not finite become None, tuples lists, numpy scalars Python ones."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    number = float(value)  # type: ignore[arg-type]
    if not math.isfinite(number):
        return None
    return number if isinstance(value, float) else int(number) if number.is_integer() else number
