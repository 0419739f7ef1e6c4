"""Findings of several rules -> one per cause and place, and what a proven cause explains no longer stands alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from workbench.findings.finding import CONFIDENCES, SEVERITIES, Culprit, Evidence, Finding, RuledOut, Steps
from workbench.findings.pricing import GAIN_OF_ITS_OWN

# cause -> causes that are its symptoms: where the first is proven, the others need no fix of their own
EXPLAINS: Mapping[str, tuple[str, ...]] = {
    "lr_schedule_error": ("loss_spike", "lr_too_high", "resume_state_lost"),
    "resume_state_lost": ("loss_spike", "lr_too_high"),
    "precision_or_optimizer_mismatch": ("loss_spike", "lr_too_high"),  # the reference has neither, at the same rate
    "lr_too_high": ("loss_spike", "bad_batch"),
    "no_gradient_clipping": ("loss_spike", "bad_batch"),
    "loss_normalisation": ("loss_spike", "lr_too_high", "no_gradient_clipping"),
    "bad_batch": ("loss_spike",),
    "fp16_overflow": ("loss_spike",),
    "loss_not_finite": ("loss_spike",),
    "label_leak": ("degenerate_output", "subset_regression", "loss_normalisation"),
    "recompile": ("stall_steps", "step_time_drift"),
    "data_starved": ("stall_steps", "step_time_drift", "small_ops"),
    "host_side_accumulation": ("memory_leak", "step_time_drift", "stall_steps"),
    "checkpoint_stall": ("stall_steps", "step_time_drift"),
    "evaluation_interference": ("stall_steps", "step_time_drift"),
    "host_gc_jitter": ("stall_steps",),
    "slow_rank": ("exposed_communication", "no_overlap", "slow_link", "rank_late", "fragmentation",
                  "step_time_drift"),
    "rank_late": ("exposed_communication",),
    "rank_missing_collective": ("data_starved", "slow_rank", "stall_steps", "rank_late", "slow_link"),
    "no_rdma_fallback": ("exposed_communication", "slow_link", "link_bound_sharding", "version_regression",
                         "step_time_drift"),
    "link_bound_sharding": ("exposed_communication",),
    "stage_imbalance": ("out_of_memory", "single_request_too_large", "memory_limit_too_low"),
    "device_shared_with_other_process": ("out_of_memory", "single_request_too_large", "memory_limit_too_low"),
    "version_regression": ("step_time_drift",),
    "data_mix_shift": ("subset_regression", "forgetting", "lr_too_high", "loss_spike"),
    "small_shuffle_buffer": ("data_mix_shift", "lr_too_high", "loss_spike", "bad_batch", "subset_regression"),
    "duplicate_data": ("data_mix_shift",),
}  # fmt: skip
APART_SHARE = 0.5  # of its gain: what a symptom keeps without its cause is less
UNPROVEN = frozenset({"loss_spike", "step_time_drift", "subset_regression", "out_of_memory"})  # by name
PLACED = frozenset({"fragmentation", "slow_rank", "rank_late", "memory_leak"})  # a symptom only at the same rank
ONE_PER_PLACE = frozenset({"slow_rank"})  # a rank is slow once, whatever the reason
GENERAL = ("busy_host",)  # a reason that stands for "not the device": any other is better known
UNKNOWN = "unknown"  # a sub-cause that says nothing: another input may know it
NO_REASON = (UNKNOWN, "pause_between_steps")  # stalls of which only the place is known
T = TypeVar("T")
_PLACE = ("rank", "op", "link", "subset", "data_op", "stage")


def join(findings: Sequence[Finding]) -> list[Finding]:
    """One finding per cause and place, and the symptoms of proven causes told as such.

    Returns:
        In the order of the first of each: joined findings; a finding that a proven one explains (high confidence, at
        warning or above; for the words of `UNPROVEN`, and for slow steps without a reason that are the cause's own,
        medium is enough) is of severity info and low confidence, and says by what. `none` stands only where nothing is
        at warning or above.
    """
    found: list[Finding] = []
    for finding in findings:
        place = next((i for i, other in enumerate(found) if same_cause(other, finding)), None)
        if place is None:
            found.append(finding)
        else:
            found[place] = joined(found[place], finding)
    found = [_with_sub_cause(finding, found) for finding in found]
    if any(f.severity != "info" for f in found):
        found = [f for f in found if f.cause != "none"]
    proven = [f for f in found if f.confidence != "low" and f.severity != "info"]
    return [_explained(finding, proven) for finding in found]


def same_cause(a: Finding, b: Finding) -> bool:
    """Whether two findings are one: the same cause, and no part of the place or of the sub-cause differs."""
    if a.cause != b.cause or not (a.cause in ONE_PER_PLACE or _agree(_reason(a), _reason(b))):
        return False
    places = [(getattr(a.culprit, name), getattr(b.culprit, name)) for name in _PLACE]
    if not all(_agree(x, y) for x, y in places):
        return False
    placed = [all(p[i] is None for p in places) for i in (0, 1)]
    return any(placed) or any(x is not None and x == y for x, y in places)


def joined(a: Finding, b: Finding) -> Finding:
    """Two findings of one cause as one: the surer (then the graver, then the first) leads, the other adds facts."""
    lead, other = sorted((a, b), key=lambda f: (CONFIDENCES.index(f.confidence), SEVERITIES.index(f.severity)))
    place = {n: _first(getattr(lead.culprit, n), getattr(other.culprit, n)) for n in _PLACE}
    known = {(e.fact, e.where) for e in lead.evidence}
    dropped = {r.cause for r in lead.rules_out}
    return replace(
        lead,
        sub_cause=_first(None if lead.sub_cause in GENERAL else _reason(lead), _reason(other)) or lead.sub_cause,
        severity=min(lead.severity, other.severity, key=SEVERITIES.index),
        culprit=Culprit(**place),
        steps=other.steps if lead.steps == Steps() else lead.steps,
        saves_us_per_step=_first(lead.saves_us_per_step, other.saves_us_per_step),
        saves_interval_us=_first(lead.saves_interval_us, other.saves_interval_us),
        evidence=(*lead.evidence, *(e for e in other.evidence if (e.fact, e.where) not in known)),
        rules_out=(*lead.rules_out, *(r for r in other.rules_out if r.cause not in dropped)),
    )


def _with_sub_cause(finding: Finding, found: Sequence[Finding]) -> Finding:
    """A slow rank whose own memory pool is in fragments is slow because of them: the evidence stands with it."""
    if finding.cause != "slow_rank" or finding.sub_cause not in (None, "busy_host", "fragmentation"):
        return finding
    pool = [f for f in found if f.cause == "fragmentation" and f.culprit.rank == finding.culprit.rank]
    if not pool or finding.culprit.rank is None:
        return finding
    return replace(
        finding,
        sub_cause="fragmentation",
        confidence=min(finding.confidence, pool[0].confidence, key=CONFIDENCES.index),
        fix=f"{finding.fix} {pool[0].fix}",
        evidence=(*finding.evidence, *pool[0].evidence),
    )


def _explained(finding: Finding, proven: Sequence[Finding]) -> Finding:
    by = next((p for p in proven if p is not finding and _explains(p, finding) and not _apart(p, finding)), None)
    if by is None:
        return finding
    because = f"explained by {by.cause}: {by.title}"
    return replace(
        finding,
        severity="info",
        confidence="low",
        evidence=(*finding.evidence, Evidence(fact="explained by", value=by.cause)),
        rules_out=(*finding.rules_out, RuledOut(cause=finding.cause, because=because)),
    )


def _apart(cause: Finding, symptom: Finding) -> bool:
    """Replayed together, the second still costs what it costs when the first is gone: it is no symptom of it."""
    own = [next((e.value for e in f.evidence if e.fact == GAIN_OF_ITS_OWN), None) for f in (cause, symptom)]
    if own[0] is None or not isinstance(own[1], float | int):
        return False
    return own[1] > 0 and own[1] >= APART_SHARE * (symptom.saves_us_per_step or 0.0)


def _explains(cause: Finding, symptom: Finding) -> bool:
    if symptom.cause not in EXPLAINS.get(cause.cause, ()):
        return False
    if cause.confidence != "high" and symptom.cause not in UNPROVEN and not _same_steps(cause, symptom):
        return False
    ranks = (cause.culprit.rank, symptom.culprit.rank)
    return symptom.cause not in PLACED or None in ranks or ranks[0] == ranks[1]


def _same_steps(cause: Finding, symptom: Finding) -> bool:
    """The symptom has no reason of its own, and each of its steps is one that the cause lists."""
    of_cause, of_symptom = set(cause.steps.list or ()), set(symptom.steps.list or ())
    return symptom.sub_cause in NO_REASON and bool(of_symptom) and of_symptom <= of_cause


def _reason(finding: Finding) -> str | None:
    return None if finding.sub_cause == UNKNOWN else finding.sub_cause


def _agree(a: object, b: object) -> bool:
    return a is None or b is None or a == b


def _first(a: T | None, b: T | None) -> T | None:
    return b if a is None else a
