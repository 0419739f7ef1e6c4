"""Losses, gradient norms and rates of a training -> where it was damaged, diverged, began anew, is scaled wrongly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from workbench.analyses.settings import setting
from workbench.analyses.statistics import MAD_TO_SIGMA, FloatArray, mad
from workbench.analyses.training import level_at, spikes

STEPS_LEAST = 30
SETTLED_STEPS = 20  # fewer steps do not tell what is typical
AFTER_STEPS = 8
DAMAGE_SHARE = 0.05
DAMAGE_SIGMAS = 3.0
NORM_JUMP = 4.0  # times the typical gradient norm
RISE_SHARE = 0.10  # of the lowest level
EARLY_SIGMAS = 5.0  # the first loss and the highest of hundreds can be off by 2 to 3 deviations each, to both sides
JUMP_SHARE = 0.30  # a single step above the first loss: batches of a fresh model differ by a few percent
SHORT_WARMUP = 10  # steps
FIRST_SHARE = 0.15  # of the steps: where a loss above its first value tells of a first rate that is too high
RESTART_DROP = 0.5
RESTART_STEPS = 5
CLIP_SETTINGS = ("clip_norm", "max_grad_norm", "clip_grad", "gradient_clip", "grad_clip", "gradient_clip_val",
                 "gradient_clipping", "clip_gradient", "use_clip_grad")  # fmt: skip
GROWTH_RATIO = 3.0  # a rate of 1e-3 moves weights of 0.02 by a hundredth of that in a step, and not always the same way
UNWARMED_RATIO = 2.0  # at full rate from the start, where the gradients show the shock too
GROWTH_STEPS = 100
OFF = frozenset({"none", "null", "0", "0.0", "false", "inf", "off", ""})
VOCABULARY = ("vocabulary_size", "vocab_size", "padded_vocab_size")
COUNTS = ("accumulation_steps", "gradient_accumulation_steps", "gradient_accumulation", "micro_batch_num",
          "micro_batches", "device_num", "world_size")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """A loss that gets worse and stays so while the rate is near its peak.

    Attributes:
        step: where it turned, or the first step, if the loss at once rose above its first value (at_start).
        best, after: level before, and median of what follows; norm_before, norm_after: gradient norm, NaN if unknown.
        rate, peak_rate: learning rate there, and its peak; warmup_steps: steps until the peak; NaN or 0 if unknown.
    """

    step: int
    at_start: bool
    best: float
    after: float
    norm_before: float
    norm_after: float
    rate: float
    peak_rate: float
    warmup_steps: int


def warmup_end(job: pd.DataFrame) -> int:
    """Step at which the learning rate first comes to its peak (99 %); the first step where rates are not known."""
    rates = job.dropna(subset=["learning_rate"])
    if rates.empty or not rates["learning_rate"].max() > 0:
        return int(job["step"].iloc[0]) if len(job) else 0
    return int(rates.loc[rates["learning_rate"] >= 0.99 * rates["learning_rate"].max(), "step"].iloc[0])


def settled(job: pd.DataFrame, episodes: pd.DataFrame) -> pd.DataFrame:
    """Episodes of `spikes` that begin after the warm-up and after `SETTLED_STEPS` steps: before, losses move a lot."""
    if len(job) <= SETTLED_STEPS:
        return episodes.iloc[:0]
    first = int(job["step"].iloc[SETTLED_STEPS])
    end = warmup_end(job)
    is_early = end <= float(job["step"].quantile(0.5))  # a rate that only rises has no end of its warm-up
    return episodes[episodes["first_step"] > max(first, end if is_early else first)]


def loss_episodes(job: pd.DataFrame) -> pd.DataFrame:
    """Jumps of the loss with what came with and after them.

    Args:
        job: as `workbench.analyses.training.job_steps` returns.

    Returns:
        One row per settled episode of `spikes`: its columns, ratio (peak over typical), norm_ratio (largest gradient
        norm from one step before it to one behind over the typical one; NaN if unknown), after (median loss of the
        `AFTER_STEPS` steps behind it; NaN at the end), damaged (whether that is above the level of as many steps
        before it, beyond noise).
    """
    found = settled(job, spikes(job, "loss"))
    found = found[np.isfinite(found["typical"].astype("float64")) & np.isfinite(found["peak"].astype("float64"))]
    rows = [_episode(job, row) for row in found.to_dict("records")]
    more = pd.DataFrame(rows, columns=["ratio", "norm_ratio", "after", "damaged"], index=found.index)
    return pd.concat([found, more], axis=1).reset_index(drop=True)


def clips_gradients(settings: pd.DataFrame | None) -> bool | None:
    """Whether the settings clip gradients; None where no setting tells."""
    text = setting(settings, *CLIP_SETTINGS)
    return None if text is None else text.strip().lower() not in OFF


def divergence(job: pd.DataFrame) -> Divergence | None:
    """The loss turned upwards for good although the rate did not end; None where it did not.

    It counts if the level behind stays `RISE_SHARE` above the best level before, to the last step, over at least a
    tenth of the steps; or if within the first steps the loss rises that far above its first value. Without a warm-up a
    single step is enough, `JUMP_SHARE` above the first loss of a fresh model (one that learned a lot afterwards), or
    above its lowest one with a gradient norm that jumps, too. All of it counts beyond the scatter of single losses,
    which is large where batches are small.
    """
    known = job[job["loss"].notna() & np.isfinite(job["loss"].astype("float64"))]
    if len(known) < STEPS_LEAST:
        return None
    loss, step = known["loss"].to_numpy("float64"), known["step"].to_numpy("int64")
    window = max(5, len(loss) // 24)
    level = _medians(loss, window)
    noise = MAD_TO_SIGMA * mad(loss - level)
    head = _medians(loss, 3)[: max(SETTLED_STEPS, int(FIRST_SHARE * len(loss)))]
    if head.max() > max((1 + RISE_SHARE) * loss[0], loss[0] + EARLY_SIGMAS * noise) and head.argmax() > 0:
        return _diverged(job, int(step[0]), at_start=True, best=float(loss[0]), after=float(head.max()))
    jump = _jump_without_warmup(job, known, len(head), EARLY_SIGMAS * noise)
    if jump is not None:
        return _diverged(job, int(step[0]), at_start=True, best=float(loss[: jump + 1].min()), after=float(loss[jump]))
    best = int(level.argmin())
    behind = level[best + window :]
    noise = max(noise, _scatter(loss[max(best - 4 * window, 0) : best + window]))
    least = max((1 + RISE_SHARE) * level[best], level[best] + DAMAGE_SIGMAS * noise)
    if len(behind) < max(window, len(loss) // 10) or not (behind[len(behind) // 4 :] > least).all():
        return None
    return _diverged(job, int(step[best]), at_start=False, best=float(level[best]), after=float(np.median(behind)))


def _scatter(loss: FloatArray) -> float:
    """Of single losses, by their differences: a fall without a step back has no distance from its running median."""
    return MAD_TO_SIGMA * mad(np.diff(loss)) / math.sqrt(2) if len(loss) > 2 else 0.0


@dataclass(frozen=True, kw_only=True)
class ParameterGrowth:
    """Parameters that outgrow what they began with.

    Attributes:
        first_step, last_step: where the norms were recorded; norm_before, norm_after: L2 norm of all parameters.
        peak_rate: highest learning rate up to there, NaN if unknown; warmup_steps: steps until its peak, 0 if unknown.
    """

    first_step: int
    last_step: int
    norm_before: float
    norm_after: float
    peak_rate: float
    warmup_steps: int


def parameter_growth(job: pd.DataFrame) -> ParameterGrowth | None:
    """The norm of the parameters became `GROWTH_RATIO` times its first value within `GROWTH_STEPS` steps of a start.

    `UNWARMED_RATIO` times is enough where the rate is at its peak within `SHORT_WARMUP` steps and the gradient norm
    jumps `NORM_JUMP` times over its median. None where it did not, where the training does not begin at its first
    step, or where fewer than two norms are known.
    """
    known = job[np.isfinite(job["parameter_norm"]) & (job["parameter_norm"] > 0)]
    if len(known) < 2 or int(job["step"].iloc[0]) > 1:
        return None
    first = known.iloc[0]
    early = job[job["step"] <= job["step"].iloc[0] + GROWTH_STEPS]
    has_rates = bool((job["learning_rate"] > 0).any())
    warmup_steps = warmup_end(job) - int(job["step"].iloc[0]) if has_rates else 0
    is_shocked = has_rates and warmup_steps < SHORT_WARMUP and _norm_jumps(early)
    ratio = UNWARMED_RATIO if is_shocked else GROWTH_RATIO
    near = known[known["step"] <= early["step"].iloc[-1]]
    grown = near[near["parameter_norm"] >= ratio * first["parameter_norm"]]
    if grown.empty:
        return None
    last = grown.iloc[0]
    rates = job.loc[job["step"] <= last["step"], "learning_rate"].dropna()
    return ParameterGrowth(
        first_step=int(first["step"]), last_step=int(last["step"]), norm_before=float(first["parameter_norm"]),
        norm_after=float(last["parameter_norm"]), peak_rate=float(rates.max()) if len(rates) else math.nan,
        warmup_steps=warmup_steps,
    )  # fmt: skip


def _norm_jumps(early: pd.DataFrame) -> bool:
    norms = early["gradient_norm"].iloc[1:].astype("float64")  # the first one is that of random parameters
    return bool(norms.max() > NORM_JUMP * norms.median())


def restarts(job: pd.DataFrame, events: pd.DataFrame | None = None) -> list[tuple[int, bool, bool]]:
    """Steps at which the training began anew: (step, whether the rate began at its beginning, whether it was started).

    The rate restarts where it falls below half and then goes through its first values again. Starts that are recorded
    (events of kind start) count with or without that.
    """
    rates = job.dropna(subset=["learning_rate"])
    step, rate = rates["step"].to_numpy("int64"), rates["learning_rate"].to_numpy("float64")
    found = {int(step[i]): True for i in _rate_restarts(rate)}
    begun = set()
    if events is not None:
        begun = {int(s) for s in events.loc[events["kind"] == "start", "step"].dropna() if s > job["step"].iloc[0]}
    near = {s: min(found, key=lambda f: abs(f - s), default=-99) for s in begun}
    steps = {near[s] if abs(near[s] - s) <= 1 else s for s in begun} | set(found)
    return [(s, found.get(s, False), any(abs(s - b) <= 1 for b in begun)) for s in sorted(steps)]


def loss_factor(job: pd.DataFrame, settings: pd.DataFrame | None) -> tuple[float, float] | None:
    """First loss, and the loss of guessing, ln(vocabulary); None where the vocabulary is not known."""
    text = setting(settings, *VOCABULARY)
    loss = job["loss"].dropna()
    if text is None or not text.isdigit() or int(text) < 2 or loss.empty:
        return None
    return float(loss.iloc[0]), math.log(int(text))


def counts_near(factor: float, settings: pd.DataFrame | None, error: float) -> tuple[str, int] | None:
    """The setting of `COUNTS` above 1 that a factor equals within a share `error`."""
    for name in COUNTS:
        text = setting(settings, name)
        if text is not None and text.isdigit() and int(text) > 1 and abs(factor / int(text) - 1) <= error:
            return name, int(text)
    return None


def _episode(job: pd.DataFrame, row: dict[str, float]) -> tuple[float, float, float, bool]:
    first, last, typical = int(row["first_step"]), int(row["last_step"]), float(row["typical"])
    norms = job.loc[job["step"].between(first - 1, last + 1), "gradient_norm"].dropna()
    usual = level_at(job, "gradient_norm", first - 2)
    behind = job.loc[job["step"] > last, "loss"].dropna().head(AFTER_STEPS)
    before = job.loc[job["step"] < first, "loss"].dropna().tail(50)
    after = float(behind.median()) if len(behind) >= AFTER_STEPS // 2 else math.nan
    noise = MAD_TO_SIGMA * mad(before.diff().dropna()) / math.sqrt(2) if len(before) > 2 else 0.0
    level = float(before.tail(AFTER_STEPS).median())
    limit = level + max(DAMAGE_SHARE * level, DAMAGE_SIGMAS * noise * math.sqrt(math.pi / AFTER_STEPS))
    ratio = float(norms.max()) / usual if len(norms) and usual > 0 else math.nan
    return float(row["peak"]) / typical if typical > 0 else math.inf, ratio, after, after > limit


def _jump_without_warmup(job: pd.DataFrame, known: pd.DataFrame, early: int, least: float) -> int | None:
    """Place of the highest of the first `early` losses where it jumps though the rate did not warm up; else None.

    It jumps if it is `JUMP_SHARE`, and `least` nats, above the first loss, or above the lowest one so far while the
    gradient norm is `NORM_JUMP` times its median so far.
    """
    begins, has_rates = int(job["step"].iloc[0]) <= 1, bool(job["learning_rate"].notna().any())
    if not begins or not has_rates or warmup_end(job) - int(job["step"].iloc[0]) >= SHORT_WARMUP:
        return None
    loss, norm = known["loss"].to_numpy("float64"), known["gradient_norm"].to_numpy("float64")
    if not float(np.median(loss[len(loss) // 2 :])) * (1 + JUMP_SHARE) < loss[0]:
        return None  # a model that has learned: its first loss is no measure
    jumps = [k for k in range(1, early) if _jumps_at(loss, norm, k, least)]
    return max(jumps, key=lambda k: loss[k]) if jumps else None


def _jumps_at(loss: FloatArray, norm: FloatArray, k: int, least: float) -> bool:
    lowest = loss[:k].min()
    if loss[k] > max((1 + JUMP_SHARE) * loss[0], loss[0] + least):
        return True
    above = loss[k] > max((1 + JUMP_SHARE) * lowest, lowest + least)
    return bool(above and norm[k] > NORM_JUMP * np.median(norm[:k]))


def _diverged(job: pd.DataFrame, step: int, *, at_start: bool, best: float, after: float) -> Divergence:
    rates, end = job.dropna(subset=["learning_rate"]), warmup_end(job)
    behind = job.loc[job["step"] > step, "gradient_norm"].dropna()
    norm = level_at(job, "gradient_norm", step, window=10)
    own = rates.loc[rates["step"] <= step, "learning_rate"]
    return Divergence(
        step=step, at_start=at_start, best=best, after=after, norm_before=norm,
        norm_after=float(behind.median()) if len(behind) else math.nan,
        rate=float(own.iloc[-1]) if len(own) else math.nan,
        peak_rate=float(rates["learning_rate"].max()) if len(rates) else math.nan,
        warmup_steps=end - int(job["step"].iloc[0]) if len(rates) else 0,
    )  # fmt: skip


def _rate_restarts(rate: FloatArray) -> Sequence[int]:
    found = []
    for i in np.flatnonzero(rate[1:] < RESTART_DROP * rate[:-1]) + 1:
        again, start = rate[i : i + RESTART_STEPS], rate[: len(rate[i : i + RESTART_STEPS])]
        rises = len(again) == RESTART_STEPS and bool((np.diff(again) > 0).all())
        if i >= RESTART_STEPS and rises and np.allclose(again, start, rtol=0.05, atol=1e-3 * rate.max()):
            found.append(int(i))
    return found


def _medians(values: FloatArray, window: int) -> FloatArray:
    return pd.Series(values).rolling(window, center=True, min_periods=1).median().to_numpy("float64")
