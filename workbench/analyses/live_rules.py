"""Records of steps as they come -> what someone should know now: rules on live metrics, cheap enough for every step.

The rules look at one rank at a time and keep a few numbers of its last steps. What is proven afterwards from all tables
is for the findings; these are to wake someone up.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from workbench.errors import UnknownParameterError
from workbench.tables import TRAINING_STEPS

BASELINE_STEPS = 30  # the first steps that were not compiled say what is usual
RECENT_STEPS = 20  # a median over these does not see a single stall
SLOW_FACTOR, CALM_FACTOR = 1.5, 1.2  # of the usual step time: raised above the first, over below the second
WAIT_SHARE, CALM_WAIT_SHARE = 0.3, 0.2
OVERFLOWS = 10  # in a row: a loss scale that adapts has two or three
LOSS_BEFORE, LOSS_NOW = 50, 5
LOSS_FACTOR, LOSS_SIGMAS = 1.5, 10.0
STALL_S, STALL_STEPS = 600.0, 50.0  # no step for both: saving and evaluating may take minutes
MAD_TO_SIGMA = 1.4826
NUMBERS = {c.name for c in TRAINING_STEPS.columns if c.dtype in ("float64", "Int64", "boolean")}
_RULE = re.compile(
    r"\s*(?P<metric>\w+)\s*(?P<sign>[<>])\s*(?P<value>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
    r"(?:\s+for\s+(?P<steps>\d+)(?:\s+steps?)?)?\s*"
)


@dataclass(frozen=True, kw_only=True)
class LiveAlert:
    """What a rule says: its name, how bad it is, one sentence, what to do, and the step."""

    rule: str
    rank_id: int
    severity: str
    title: str
    fix: str
    step: int
    again: bool = False  # it was over in between

    @property
    def key(self) -> str:
        """The same for the same episode on the same rank."""
        return f"{self.rule}:rank_{self.rank_id}" + (f":{self.step}" if self.again else "")


@dataclass(frozen=True, kw_only=True)
class MetricRule:
    """A rule of the user's: a column of `training_steps` beyond a value at some steps in a row."""

    metric: str
    above: bool
    value: float
    steps: int = 1

    @property
    def text(self) -> str:
        """As `metric_rule` reads it."""
        return f"{self.metric} {'>' if self.above else '<'} {self.value:g}" + (
            f" for {self.steps} steps" if self.steps > 1 else ""
        )


def metric_rule(text: str) -> MetricRule:
    """Read a rule such as `gradient_norm > 100 for 3 steps` or `tokens_per_s < 2e4`.

    Raises:
        UnknownParameterError: it is none, or the metric is no number of table `training_steps`.
    """
    match = _RULE.fullmatch(text)
    if match is None or int(match["steps"] or 1) < 1:
        raise UnknownParameterError(
            f"{text!r} is no rule for alerts.", fix="write METRIC > VALUE or METRIC < VALUE, then perhaps: for N steps"
        )
    if match["metric"] not in NUMBERS:
        raise UnknownParameterError(
            f"The rule {text!r} names no metric of a step.", fix=f"use one of {', '.join(sorted(NUMBERS))}"
        )
    steps = int(match["steps"] or 1)
    return MetricRule(metric=match["metric"], above=match["sign"] == ">", value=float(match["value"]), steps=steps)


@dataclass
class _Rank:
    """The last steps of one rank, and what is the matter with it at present."""

    usual_us: list[float] = field(default_factory=list)
    recent_us: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT_STEPS))
    waits_us: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT_STEPS))
    losses: deque[float] = field(default_factory=lambda: deque(maxlen=LOSS_BEFORE + LOSS_NOW))
    overflows: int = 0
    in_a_row: dict[str, int] = field(default_factory=dict)  # steps beyond a metric rule
    raised: dict[str, bool] = field(default_factory=dict)  # rule -> whether it holds now
    last_step: int = 0
    last_ns: int = 0


class LiveRules:
    """Feed it the records of steps in order; it gives the alerts of each.

    Args:
        rules: rules of the user's, beside those that are always there: a loss that is not finite or rises, gradients
            that overflow, steps that got slow, waiting for data, and no step for long.
    """

    def __init__(self, rules: Sequence[MetricRule] = ()) -> None:
        self._rules = tuple(rules)
        self._ranks: dict[int, _Rank] = {}

    def feed(self, record: Mapping[str, Any], *, rank_id: int) -> list[LiveAlert]:
        """The alerts that a record of a step raises; each rule once until it was over."""
        rank = self._ranks.setdefault(rank_id, _Rank())
        rank.last_step, rank.last_ns = int(_number(record, "step") or 0), int(_number(record, "time_ns") or 0)
        rank.raised.pop("no_step", None)
        found = [self._loss(rank, record), self._overflow(rank, record), *self._times(rank, record)]
        found += [self._metric(rank, record, rule) for rule in self._rules]
        return [_at(alert, rank_id, rank.last_step) for alert in found if alert is not None]

    def stalled(self, now_ns: int) -> list[LiveAlert]:
        """One alert per rank that has written no step for long, by its own pace."""
        found = []
        for rank_id, rank in self._ranks.items():
            silent_s = (now_ns - rank.last_ns) / 1e9
            usual_s = median(rank.recent_us) / 1e6 if rank.recent_us else math.inf
            if silent_s > max(STALL_S, STALL_STEPS * usual_s) and rank.last_ns and not rank.raised.get("no_step"):
                rank.raised["no_step"] = True
                title = f"Rank {rank_id} has finished no step for {silent_s / 60:.0f} min since step {rank.last_step}."
                fix = "Look for a rank that hangs (collective, data, storage): `workbench diagnose` on its logs."
                alert = LiveAlert(rule=f"no_step_since_{rank.last_step}", rank_id=rank_id, severity="critical",
                                  title=title, fix=fix, step=rank.last_step)  # fmt: skip
                found.append(alert)
        return found

    def _loss(self, rank: _Rank, record: Mapping[str, Any]) -> LiveAlert | None:
        loss = record.get("loss")
        lost = isinstance(loss, str) or (isinstance(loss, float) and not math.isfinite(loss))
        lost = lost or record.get("loss_finite") is False
        if lost:
            fix = "Stop the run if it does not recover; go back to the last good checkpoint (playbook T1)."
            title = "The loss of rank {rank} is not finite at step {step}."
            return _raise(rank, "loss_not_finite", "critical", title, fix)
        value = _number(record, "loss")
        if value is None:
            return None
        _over(rank, "loss_not_finite")
        rank.losses.append(value)
        if len(rank.losses) < LOSS_BEFORE + LOSS_NOW:
            return None
        before, now = list(rank.losses)[:LOSS_BEFORE], median(list(rank.losses)[-LOSS_NOW:])
        usual = median(before)
        noise = MAD_TO_SIGMA * median(abs(x - usual) for x in before)
        if now > LOSS_FACTOR * abs(usual) and now > usual + LOSS_SIGMAS * noise:
            title = f"The loss of rank {{rank}} rose from {usual:.4g} to {now:.4g} at step {{step}}."
            return _raise(rank, "loss_rise", "warning", title, "Look at gradient norm and learning rate (playbook T1).")
        if now <= usual:
            _over(rank, "loss_rise")
        return None

    def _overflow(self, rank: _Rank, record: Mapping[str, Any]) -> LiveAlert | None:
        rank.overflows = rank.overflows + 1 if record.get("overflow") is True else 0
        if rank.overflows >= OVERFLOWS:
            title = f"The gradients of rank {{rank}} overflowed at {OVERFLOWS} steps in a row, up to step {{step}}."
            return _raise(rank, "overflows", "critical", title, "Look at loss scale and data type (playbook T1).")
        if rank.overflows == 0:
            _over(rank, "overflows")
        return None

    def _times(self, rank: _Rank, record: Mapping[str, Any]) -> list[LiveAlert | None]:
        step_us, wait_us = _number(record, "step_us"), _number(record, "data_wait_us")
        if step_us is None or step_us <= 0 or record.get("compiled") is True:
            return []
        if len(rank.usual_us) < BASELINE_STEPS:
            rank.usual_us.append(step_us)
            return []
        rank.recent_us.append(step_us)
        rank.waits_us.append(wait_us or 0.0)
        if len(rank.recent_us) < RECENT_STEPS:
            return []
        return [_slow(rank), _waiting(rank)]

    def _metric(self, rank: _Rank, record: Mapping[str, Any], rule: MetricRule) -> LiveAlert | None:
        value = _number(record, rule.metric)
        beyond = value is not None and (value > rule.value if rule.above else value < rule.value)
        rank.in_a_row[rule.text] = rank.in_a_row.get(rule.text, 0) + 1 if beyond else 0
        if not beyond:
            _over(rank, rule.text)
        if rank.in_a_row[rule.text] < rule.steps:
            return None
        title = f"{rule.metric} of rank {{rank}} is {value:.4g} at step {{step}}: {rule.text}."
        return _raise(rank, rule.text, "warning", title, "Look at what the rule was made for.")


def _slow(rank: _Rank) -> LiveAlert | None:
    usual, now = median(rank.usual_us), median(rank.recent_us)
    if now < CALM_FACTOR * usual:
        _over(rank, "slow_steps")
    if now <= SLOW_FACTOR * usual:
        return None
    title = f"Steps of rank {{rank}} take {now / 1e3:,.1f} ms up to step {{step}}, {now / usual:.1f} times the usual."
    return _raise(rank, "slow_steps", "warning", title, "Run `workbench diagnose` on the run (playbooks T2 and T7).")


def _waiting(rank: _Rank) -> LiveAlert | None:
    share = sum(rank.waits_us) / sum(rank.recent_us)
    if share < CALM_WAIT_SHARE:
        _over(rank, "data_wait")
    if share <= WAIT_SHARE:
        return None
    title = f"Rank {{rank}} waits for data in {share:.0%} of its time, up to step {{step}}."
    return _raise(rank, "data_wait", "warning", title, "Look at the data pipeline (playbook T6).")


def _raise(rank: _Rank, rule: str, severity: str, title: str, fix: str) -> LiveAlert | None:
    """The alert, if the rule does not hold already; `title` may name {rank} and {step}."""
    again = rule in rank.raised
    if rank.raised.get(rule):
        return None
    rank.raised[rule] = True
    return LiveAlert(rule=rule, rank_id=-1, severity=severity, title=title, fix=fix, step=0, again=again)


def _over(rank: _Rank, rule: str) -> None:
    if rule in rank.raised:
        rank.raised[rule] = False


def _at(alert: LiveAlert, rank_id: int, step: int) -> LiveAlert:
    title = alert.title.replace("{rank}", str(rank_id)).replace("{step}", str(step))
    return LiveAlert(rule=alert.rule, rank_id=rank_id, severity=alert.severity, title=title, fix=alert.fix, step=step,
                     again=alert.again)  # fmt: skip


def _number(record: Mapping[str, Any], name: str) -> float | None:
    """A finite number of the record; None for anything else, words such as NaN among them."""
    value = record.get(name)
    if isinstance(value, bool):
        return float(value)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
