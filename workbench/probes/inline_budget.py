"""When to evaluate during training, and what: measured costs and losses in, decisions out. No MindSpore, no clock.

The rule that keeps the budget: an evaluation starts only if what was spent so far and what it is expected to cost are
together at most `budget_share` of the training time so far. The loss decides how often within that.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

WINDOW_STEPS = 20  # losses whose jumps tell the present volatility
REFERENCE_WINDOWS = 10  # earlier windows that tell the usual one
KEPT_COSTS = 3  # costs of a subset that are remembered; the largest counts
COST_MARGIN = 1.1
FASTEST, SLOWEST = 0.2, 4.0  # interval as a multiple of `every`, at most

Reason = Literal["loss as usual", "loss volatile", "loss steady", "budget", "fixed interval"]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What was decided at a step, and from which numbers. Times are seconds, intervals are steps."""

    step: int
    subsets: tuple[str, ...]  # to evaluate now; none: wait
    reason: Reason  # for the time of the next decision
    next_step: int
    wanted_steps: int  # by the loss
    affordable_steps: int  # by the budget, for one round of the queue
    volatility_ratio: float  # jumps of the loss, against what is usual; missing in the beginning
    spent_seconds: float
    expected_seconds: float  # of `subsets`, or of the first in the queue where that is too dear
    training_seconds: float  # without evaluations

    def to_dict(self) -> dict[str, object]:
        """Plain values, for the event log."""
        return asdict(self)


class InlineBudget:
    """Decides at each step; `spent` and `losses` are told to it.

    Args:
        every: steps between evaluations while the loss is as volatile as usual.
        budget_share: largest share of the training time that evaluations may take.
        controlled: False evaluates the whole queue every `every` steps, whatever it costs.
    """

    def __init__(self, *, every: int = 50, budget_share: float = 0.05, controlled: bool = True) -> None:
        self.every, self.budget_share, self.controlled = every, budget_share, controlled
        self.next_step = every
        self.spent_seconds = 0.0
        self._costs: dict[str, deque[float]] = {}
        self._jumps: deque[float] = deque(maxlen=WINDOW_STEPS * (REFERENCE_WINDOWS + 1))
        self._last_loss = math.nan

    def loss(self, value: float | None) -> None:
        """Tell the loss of a step."""
        if value is None:
            return
        known = math.isfinite(value)
        if not math.isnan(self._last_loss):
            self._jumps.append(abs(value - self._last_loss) if known else math.inf)
        self._last_loss = value if known else self._last_loss

    def spent(self, seconds: float, *, by_subset: Mapping[str, float]) -> None:
        """Tell what an evaluation took: all of it, and the part of each subset that will be spent again."""
        self.spent_seconds += seconds
        for subset, cost in by_subset.items():
            self._costs.setdefault(subset, deque(maxlen=KEPT_COSTS)).append(cost)

    def decide(
        self, step: int, queue: Mapping[str, float], *, training_seconds: float, compile_seconds: float = 0.0
    ) -> Decision | None:
        """The decision due at `step`; None while none is due.

        Args:
            step: training step that has just ended.
            queue: subsets that wait, in their order, with the seconds to expect of those that were never measured.
            training_seconds: since the training began, without evaluations.
            compile_seconds: to expect for graphs that are not compiled yet.
        """
        if step < self.next_step or not queue:
            return None
        costs = [COST_MARGIN * max(self._costs[s]) if s in self._costs else guess for s, guess in queue.items()]
        totals = compile_seconds + np.cumsum(costs)
        left = self.budget_share * training_seconds - self.spent_seconds
        count = int(np.searchsorted(totals, left, side="right")) if self.controlled else len(queue)
        pace = max(self.budget_share * training_seconds / max(step, 1), 1e-9)  # seconds of evaluation that a step earns
        return self._decision(step, list(queue)[:count], totals, pace, training_seconds)

    def _decision(
        self, step: int, chosen: list[str], totals: np.ndarray, pace: float, training_seconds: float
    ) -> Decision:
        ratio = self._volatility_ratio()
        wanted = self._wanted(ratio)
        expected = float(totals[max(len(chosen) - 1, 0)])
        missing = self.spent_seconds + expected - self.budget_share * training_seconds
        steps = wanted if chosen else max(math.ceil(missing / pace), 1)
        reason: Reason = self._word(ratio) if chosen else "budget"
        self.next_step = step + steps
        return Decision(
            step=step, subsets=tuple(chosen), reason=reason, next_step=self.next_step, wanted_steps=wanted,
            affordable_steps=math.ceil(float(totals[-1]) / pace), volatility_ratio=ratio,
            spent_seconds=self.spent_seconds, expected_seconds=expected, training_seconds=training_seconds,
        )  # fmt: skip

    def _volatility_ratio(self) -> float:
        """Mean jump of the loss in the last window over the median of the windows before; NaN before there are two."""
        jumps = np.array(self._jumps)
        windows = len(jumps) // WINDOW_STEPS
        if windows < 2:
            return math.nan
        means = jumps[-windows * WINDOW_STEPS :].reshape(windows, WINDOW_STEPS).mean(axis=1)
        usual = float(np.median(means[:-1]))
        return float(means[-1]) / usual if usual > 0 else math.nan

    def _wanted(self, ratio: float) -> int:
        if not self.controlled or math.isnan(ratio):
            return self.every
        return max(round(self.every * min(max(1 / max(ratio, 1e-9), FASTEST), SLOWEST)), 1)

    def _word(self, ratio: float) -> Reason:
        if not self.controlled:
            return "fixed interval"
        if math.isnan(ratio) or 2 / 3 < ratio < 1.5:
            return "loss as usual"
        return "loss volatile" if ratio >= 1.5 else "loss steady"
