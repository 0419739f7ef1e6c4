"""Table `sample_ids` -> share of each subset over training, against the intended weights, and where it drifts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from workbench.analyses.settings import setting

MODEL_PARALLEL = (
    "tensor_model_parallel_size", "model_parallel", "tensor_parallel", "tensor_parallel_size", "tp_size", "tp",
    "pipeline_model_parallel_size", "pipeline_parallel", "pipeline_stage", "pipeline_stages", "pp", "context_parallel",
    "context_parallel_size", "cp",
)  # fmt: skip
WEIGHTS = "sampling_weights."  # settings that state the intended mix
FloatArray = npt.NDArray[np.float64]
WINDOWS = 40  # over training: enough to place an onset, few enough for steady shares
CONFIDENCE = 0.95
DRAWS_PER_WINDOW = 200  # fewer make shares that no test can use


def sampling_shares(sample_ids: pd.DataFrame, *, windows: int = WINDOWS) -> pd.DataFrame:
    """Share of each subset among the samples of each window of steps, all ranks together.

    Args:
        sample_ids: table `sample_ids` with subsets.
        windows: windows of equal steps; fewer where there are fewer than 200 draws per window.

    Returns:
        Per window and subset: first_step, last_step, draws (of the window), count, share, low, high (95 %, Wilson).
    """
    used = sample_ids.dropna(subset=["subset", "sample"])
    columns = ["first_step", "last_step", "subset", "draws", "count", "share", "low", "high"]
    if used.empty:
        return pd.DataFrame(columns=columns)
    steps = np.unique(used["step"].to_numpy())
    number = int(max(1, min(windows, len(used) // DRAWS_PER_WINDOW, len(steps))))
    place = np.searchsorted(steps, used["step"].to_numpy()) * number // len(steps)
    counts = pd.crosstab(place, used["subset"].to_numpy())
    spans = (
        pd.DataFrame({"window": place, "step": used["step"].to_numpy()}).groupby("window")["step"].agg(["min", "max"])
    )
    counts.index.name, counts.columns.name = "window", "subset"
    long = counts.reset_index().melt("window", var_name="subset", value_name="count").sort_values(["window", "subset"])
    long["draws"] = long["window"].map(counts.sum(axis=1))
    long["first_step"], long["last_step"] = (long["window"].map(spans[c]) for c in ("min", "max"))
    low, high = _wilson(long["count"].to_numpy("float64"), long["draws"].to_numpy("float64"))
    return long.assign(share=long["count"] / long["draws"], low=low, high=high)[columns].reset_index(drop=True)


def overall_shares(sample_ids: pd.DataFrame, intended: Mapping[str, float] | None = None) -> pd.DataFrame:
    """Share of each subset over the whole training, against what was intended.

    Args:
        sample_ids: table `sample_ids` with subsets.
        intended: subset -> weight, of any sum.

    Returns:
        Per subset: count, share, intended_share (NaN where not known), difference (share - intended_share), z
        (difference over its standard error, as widened by clustered batches).
    """
    counts = sample_ids.dropna(subset=["sample"])["subset"].value_counts()
    total = counts.sum()
    names = sorted({*map(str, counts.index), *(intended or {})})
    whole = sum((intended or {}).values())
    table = pd.DataFrame({"subset": names, "count": [int(counts.get(n, 0)) for n in names]})
    table["share"] = table["count"] / total if total else float("nan")
    table["intended_share"] = [intended.get(n, 0.0) / whole if intended and whole else float("nan") for n in names]
    table["difference"] = table["share"] - table["intended_share"]
    spread = dispersion(sampling_shares(sample_ids))
    error = np.sqrt(spread * (table["intended_share"] * (1 - table["intended_share"])).clip(lower=1e-9) / max(total, 1))
    return table.assign(z=table["difference"] / error)


def mix_drift(shares: pd.DataFrame) -> pd.DataFrame:
    """Subsets whose share does not stay the same, and since when.

    For each subset, the counts of the windows are compared with a constant share (chi-squared over all splits into two,
    Bonferroni over splits and subsets, counts widened by `dispersion`). The onset is where a step or a ramp that begins
    there fits best.

    Args:
        shares: as `sampling_shares` returns.

    Returns:
        Per subset: before_share, after_share (at the end), change, onset_step, shape ("step" or "ramp"), p_value
        (adjusted). Empty where there are fewer than four windows.
    """
    columns = ["subset", "before_share", "after_share", "change", "onset_step", "shape", "p_value"]
    counts, draws, first = _matrix(shares)
    if len(draws) < 4 or counts.shape[1] < 2:
        return pd.DataFrame(columns=columns)
    spread = dispersion(shares)
    tests = (len(draws) - 1) * counts.shape[1]
    rows = []
    for name in counts:
        hits = counts[name].to_numpy("float64")
        statistic = _largest_split(hits, draws) / spread
        onset, shape, before, after = _onset(hits / draws, draws)
        p_value = min(1.0, float(stats.chi2.sf(statistic, 1)) * tests)
        rows.append([name, before, after, after - before, int(first[onset]), shape, p_value])
    return pd.DataFrame(rows, columns=columns).sort_values("p_value", ignore_index=True)


def intended_weights(settings: pd.DataFrame | None, data_mix: pd.DataFrame | None = None) -> dict[str, float] | None:
    """The intended mix: the settings `sampling_weights.<subset>`, else the only mix of table `data_mix`.

    Returns:
        subset -> weight, of any sum; None where it is not known, or changes by plan.
    """
    if settings is not None:
        named = settings[settings["name"].str.contains(WEIGHTS, regex=False, na=False)]
        values = pd.to_numeric(named["value"], errors="coerce")
        if len(values) and values.notna().all():
            names = [str(name).rpartition(WEIGHTS)[2] for name in named["name"]]
            return dict(zip(names, values.astype(float), strict=True))
    if data_mix is None or len(set(data_mix["from_step"])) != 1:
        return None
    return {str(k): float(v) for k, v in data_mix.groupby("source")["weight_share"].sum().items()}


def is_model_parallel(settings: pd.DataFrame | None) -> bool:
    """Whether a setting names a degree of tensor, pipeline or context parallelism above 1."""
    degrees = [setting(settings, name) for name in MODEL_PARALLEL]
    return any(degree is not None and degree.strip().isdigit() and int(degree) > 1 for degree in degrees)


def dispersion(shares: pd.DataFrame) -> float:
    """How much more the counts of neighbouring windows differ than those of independent draws; at least 1.

    Neighbours are compared, so that a drift, which is slow, hardly counts.
    """
    counts, draws, _ = _matrix(shares)
    if len(draws) < 3:
        return 1.0
    pooled = counts.to_numpy("float64").sum(axis=0) / draws.sum()
    fractions = counts.to_numpy("float64") / draws[:, None]
    variance = pooled * (1 - pooled) * (1 / draws[1:] + 1 / draws[:-1])[:, None]
    ratios = np.diff(fractions, axis=0) ** 2 / np.maximum(variance, 1e-12)
    return max(1.0, float(np.median(ratios, axis=0).mean()) / stats.chi2.median(1))


def _matrix(shares: pd.DataFrame) -> tuple[pd.DataFrame, FloatArray, FloatArray]:
    counts = shares.pivot_table(index="first_step", columns="subset", values="count", fill_value=0)
    draws = shares.groupby("first_step")["draws"].first().reindex(counts.index).to_numpy("float64")
    return counts, draws, counts.index.to_numpy("float64")


def _largest_split(hits: FloatArray, draws: FloatArray) -> float:
    """Largest chi-squared of two against one share, over all splits."""
    left_hits, left = np.cumsum(hits)[:-1], np.cumsum(draws)[:-1]
    right_hits, right = hits.sum() - left_hits, draws.sum() - left
    pooled = hits.sum() / draws.sum()
    variance = pooled * (1 - pooled) * (1 / left + 1 / right)
    return float(np.max((left_hits / left - right_hits / right) ** 2 / np.maximum(variance, 1e-12)))


def _onset(fractions: FloatArray, draws: FloatArray) -> tuple[int, str, float, float]:
    """Window of the onset, shape, and the shares before it and at the end, by weighted least squares."""
    count = len(fractions)
    best: tuple[float, int, str, float, float] | None = None
    for start in range(1, count):
        step = (np.arange(count) >= start).astype(float)
        ramp = np.clip(np.arange(count) - start + 1, 0, None) / (count - start)
        for shape, rise in (("step", step), ("ramp", ramp)):
            design = np.stack([np.ones(count), rise], axis=1) * np.sqrt(draws)[:, None]
            solved, *_ = np.linalg.lstsq(design, fractions * np.sqrt(draws), rcond=None)
            error = float(np.sum((design @ solved - fractions * np.sqrt(draws)) ** 2))
            if best is None or error < best[0] * (1 - 1e-9):
                best = (error, start, shape, float(solved[0]), float(solved.sum()))
    assert best is not None
    return best[1], best[2], min(max(best[3], 0.0), 1.0), min(max(best[4], 0.0), 1.0)


def _wilson(hits: FloatArray, draws: FloatArray) -> tuple[FloatArray, FloatArray]:
    z = float(stats.norm.ppf(0.5 + CONFIDENCE / 2))
    share = hits / draws
    middle = (share + z**2 / (2 * draws)) / (1 + z**2 / draws)
    half = z / (1 + z**2 / draws) * np.sqrt(share * (1 - share) / draws + z**2 / (4 * draws**2))
    return middle - half, middle + half
