"""Two runs of one model whose losses begin together and part, while settings of precision or optimizer differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from workbench.analyses.log_runs import named_in_order
from workbench.analyses.loss_parting import Parting, parting
from workbench.analyses.training_settings import Differences, differences
from workbench.analyses.version_change import settings_of_runs
from workbench.findings.finding import Confidence, Evidence, Finding, RuledOut, Severity, Steps, warning_or_critical
from workbench.findings.rule import Rule, Tables

GAP_LEAST = 0.01  # of the loss: what is left of rounding alone in a chaotic training stays below it
GAP_LEAST_UNSURE = 0.03  # ... where the setting is not known, or not whether the batches were the same: seeds part, too
GAP_CRITICAL = 0.10
START_UNSURE = 0.001  # of the first loss, where no setting tells that it is one network: what rounding changes it by
SAME_ORDER = 0.5  # rank correlation of the scatter: 0.67 to 1 with the same batches, 0.0 with others, in real trainings
LISTED = 8
COLLECT = "put the configuration of each run (YAML, or the log that prints its arguments) beside its log"
SOURCE = "losses at common steps, recorded settings; thresholds from real trainings, in the tests"


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of two runs: its table `training_steps`, its settings by name, and what it is called."""

    steps: pd.DataFrame
    settings: Mapping[str, str]
    name: str


def find_settings_mismatch(tables: Tables) -> list[Finding]:
    """A finding if the first and the last of several runs part and their settings of precision or optimizer differ.

    Args:
        tables: of all runs: `training_steps` with the column `run`, and where known `settings`.
    """
    steps = tables["training_steps"]
    numbers = (int(steps["run"].min()), int(steps["run"].max()))
    if numbers[0] == numbers[1]:
        return []
    parts = [steps[steps["run"] == n].drop(columns="run") for n in numbers]
    sources = {i: [str(s) for s in part["source"].dropna().unique()] for i, part in enumerate(parts)}
    told = settings_of_runs(tables.get("settings"), sources)
    sides = [
        Side(steps=parts[i], settings=told[i], name=sources[i][0] if sources[i] else f"run {i + 1}") for i in (0, 1)
    ]
    found = mismatch(sides[0], sides[1], is_ordered=named_in_order(sources[0], sources[1]))
    return [] if found is None else [found]


def mismatch(first: Side, second: Side, *, is_ordered: bool) -> Finding | None:
    """The finding on two runs, None where they do not part, or where the schedule, the data or the model explain it.

    Args:
        first: the reference.
        second: the other run.
        is_ordered: whether somebody named the first as the reference; then the second may be better without a warning.
    """
    parted = parting(first.steps, second.steps)
    if parted is None:
        return None
    differ = differences(first.settings, second.settings)
    is_same_order = parted.order_correlation >= SAME_ORDER
    confidence = _confidence(differ, is_same_order)
    sure = bool(differ.changed) and is_same_order
    if confidence is None or _is_explained(parted, differ, is_same_order):
        return None
    if abs(parted.gap_share) < (GAP_LEAST if sure else GAP_LEAST_UNSURE):
        return None
    if not differ.changed and abs(parted.start_share) > START_UNSURE:
        return None
    better = is_ordered and parted.gap.value < 0
    severity: Severity = warning_or_critical(abs(parted.gap_share), GAP_CRITICAL)
    return Finding(
        cause="precision_or_optimizer_mismatch",
        sub_cause=_sub_cause(differ),
        playbook="T1",
        severity="info" if better or confidence == "low" else severity,
        confidence=confidence,
        title=_title(first, second, parted, differ),
        fix=_fix(first, second, differ),
        source=SOURCE,
        steps=Steps(first=parted.onset_step, last=parted.last_step),
        evidence=(
            *_setting_facts(first, second, differ),
            *_loss_facts(parted),
            *_unknown(first, second, differ, parted),
        ),
        rules_out=tuple(_ruled_out(parted, is_same_order)),
    )


def _confidence(differ: Differences, is_same_order: bool) -> Confidence | None:
    """None where the recorded settings say that it is something else."""
    if differ.changed:
        return "high" if len(differ.changed) == 1 and not differ.others and is_same_order else "medium"
    if not is_same_order:
        return None
    if any(differ.known):
        return "medium" if not all(differ.known) or differ.one_sided else None
    return "low"


def _is_explained(parted: Parting, differ: Differences, is_same_order: bool) -> bool:
    """Whether the schedule, another model or batch, or other data explain that the losses part."""
    other_rate = parted.rates_differ or (parted.rates_differ is None and bool(differ.rate))
    return other_rate or bool(differ.other_job) or (bool(differ.data) and not is_same_order)


def _sub_cause(differ: Differences) -> str:
    return differ.changed[0][0].replace(" ", "_").replace("-", "_") if len(differ.changed) == 1 else (
        "several_settings" if differ.changed else "settings_not_recorded"
    )  # fmt: skip


def _title(first: Side, second: Side, parted: Parting, differ: Differences) -> str:
    gap = parted.gap
    way = "above" if gap.value > 0 else "below"
    low, high = sorted((abs(gap.low), abs(gap.high)))
    what = "; the settings that would tell why are not recorded"
    if differ.changed:
        what = "; " + _listed(differ.changed)
    return (
        f"The loss of {second.name} ends {abs(gap.value):.3g} nats ({low:.3g} to {high:.3g}; "
        f"{abs(parted.gap_share):.1%}) {way} that of {first.name}: they begin together and part at step "
        f"{parted.onset_step}{what}."
    )


def _listed(changed: Sequence[tuple[str, str, str, str]]) -> str:
    return ", ".join(f"{_called(what, name)} is {b} instead of {a}" for what, name, a, b in changed[:LISTED])


def _called(what: str, name: str) -> str:
    return what if name == what else f"{what} ({name})"


def _fix(first: Side, second: Side, differ: Differences) -> str:
    if not differ.changed:
        return f"Compare the precision and optimizer settings of both runs: {COLLECT}; then change one at a time."
    wanted = ", ".join(f"{_called(what, name)} {a}" for what, name, a, _ in differ.changed[:LISTED])
    one = "" if len(differ.changed) == 1 else ", one at a time"
    return (
        f"Train {second.name} with the values of {first.name} ({wanted}){one}, from a checkpoint before the parting, "
        "and compare the losses again; change the other way round if that one is the reference."
    )


def _setting_facts(first: Side, second: Side, differ: Differences) -> Iterator[Evidence]:
    for what, name, a, b in differ.changed[:LISTED]:
        yield Evidence(fact=f"differs: {_called(what, name)}", value=f"{a} in {first.name}, {b} in {second.name}",
                       table="settings")  # fmt: skip
    if differ.changed:
        yield Evidence(fact="settings that agree", value=differ.same, table="settings")
    if differ.others:
        yield Evidence(fact="other settings that differ", value=", ".join(differ.others[:LISTED]), table="settings")


def _loss_facts(parted: Parting) -> Iterator[Evidence]:
    gap, where = parted.gap, f"steps {parted.first_step} to {parted.last_step}"
    yield Evidence(fact="gap of the losses at the end", value=gap.value, unit="nats", table="training_steps",
                   where=f"95 % interval {gap.low:.3g} to {gap.high:.3g}, last fifth of the steps")  # fmt: skip
    yield Evidence(fact="gap against the loss of the first run", value=parted.gap_share, unit="share",
                   table="training_steps", where=f"loss {parted.loss:.3g} nats")  # fmt: skip
    yield Evidence(fact="step at which they part", value=parted.onset_step, unit="step", table="training_steps",
                   where=where)  # fmt: skip
    yield Evidence(fact="difference at the first common step", value=parted.start_share, unit="share",
                   table="training_steps")  # fmt: skip
    yield Evidence(fact="scatter of the difference from step to step", value=parted.noise, unit="nats",
                   table="training_steps")  # fmt: skip
    if parted.order_correlation == parted.order_correlation:
        yield Evidence(fact="correlation of how both losses scatter", value=parted.order_correlation,
                       table="training_steps", where="near 1 with the same batches in the same order")  # fmt: skip


def _unknown(first: Side, second: Side, differ: Differences, parted: Parting) -> Iterator[Evidence]:
    lacking = [side.name for side, known in zip((first, second), differ.known, strict=True) if not known]
    if lacking:
        yield Evidence(fact=f"not known: precision and optimizer settings of {' and '.join(lacking)}; {COLLECT}")
    elif not differ.changed:
        told = [f"{what} ({value} in {(first, second)[side].name})" for what, side, value in differ.one_sided[:LISTED]]
        yield Evidence(fact=f"not known: what only one run tells, {', '.join(told)}; {COLLECT}")
    if not parted.order_correlation >= SAME_ORDER:
        yield Evidence(fact="not known: whether both took the same batches; train both with one seed and data order")
    if parted.rates_differ is None:
        yield Evidence(fact="not known: the learning rates of both; print them")


def _ruled_out(parted: Parting, is_same_order: bool) -> Iterator[RuledOut]:
    if parted.rates_differ is False:
        yield RuledOut(cause="learning rate", because="both runs print the same rates")
    if is_same_order:
        yield RuledOut(
            cause="data order", because="both losses scatter alike from step to step: the batches are the same"
        )
    yield RuledOut(
        cause="noise",
        because=f"the interval of the gap, {parted.gap.low:.3g} to {parted.gap.high:.3g} nats, does not hold 0",
    )


RULES: tuple[Rule, ...] = (
    Rule(
        causes=("precision_or_optimizer_mismatch",),
        needs=("training_steps",),
        uses=("settings",),
        all_runs=True,
        find=find_settings_mismatch,
    ),
)
