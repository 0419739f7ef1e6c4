"""Table `layer_statistics` -> the course of each layer, what departs from its peers, and profiles over positions."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from workbench.analyses.statistics import MAD_TO_SIGMA, mad
from workbench.errors import UnknownParameterError
from workbench.tables import LAYER_STATISTICS

MEASURES = ("mean", "spread", "max_abs", "zero_share")
LOG_MEASURES = ("spread", "max_abs")
FEWEST_RECORDS = 20  # with fewer, the second quarter still lies in early learning: healthy layers part by factors of 5
FEWEST_PEERS = 3  # layers of one kind that tell what is common to the kind
DRIFT_LOG2 = 1.0  # a factor of 2 away from the peers
DRIFT_STEADY = 2.5  # ... and so many times what the layer moved within the second quarter; healthy: up to 1.4
LEAST_MOVE_LOG2 = 0.1  # a layer that stood still there moved as much as this
DRIFT_SIGMAS = 8.0  # against the layer's own record-to-record noise
COMMON_LOG2 = 3.0  # all layers together: a factor of 8 within the second half of the run
DEAD_ZERO_SHARE = 0.99
COLUMNS = [
    "rank_id",
    "layer",
    "layer_index",
    "measure",
    "what",
    "reference",
    "now",
    "departure_log2",
    "sigmas",
    "onset_step",
]


def layer_course(layer_statistics: pd.DataFrame, *, measure: str = "spread", most_steps: int = 60) -> pd.DataFrame:
    """One measure of every layer over training, against its level in the second quarter of the records.

    Args:
        layer_statistics: table `layer_statistics`; the lowest rank is shown.
        measure: one of `MEASURES`.
        most_steps: steps in the result at most; more are joined to medians.

    Returns:
        One row per (layer, step): layer_index, value, reference, change (log2 of value / reference for spread and
        max_abs, the difference for the others). Empty in, empty out.

    Raises:
        UnknownParameterError: there is no such measure.
    """
    if measure not in MEASURES:
        raise UnknownParameterError(f"There is no measure {measure!r}.", fix=f"use one of {MEASURES}")
    values = _matrix(_first_rank(whole_rows(layer_statistics)), measure)
    columns = ["layer", "layer_index", "step", "value", "reference", "change"]
    if values.empty:
        return pd.DataFrame(columns=columns)
    reference = values.iloc[_quarter(len(values))].median()
    groups = np.arange(len(values)) * min(most_steps, len(values)) // len(values)
    binned = values.groupby(groups).median().set_axis(values.index.to_series().groupby(groups).first(), axis=0)
    changed = _change(binned, reference, measure)
    parts = [
        pd.DataFrame({"layer": name, "layer_index": index, "step": binned.index, "value": binned[(index, name)],
                      "reference": reference[(index, name)], "change": changed[(index, name)]})
        for index, name in binned.columns
    ]  # fmt: skip
    return pd.concat(parts, ignore_index=True)[columns]


def layer_drift(layer_statistics: pd.DataFrame) -> pd.DataFrame:
    """Layers whose activations departed from what they were, beyond what is common to their kind.

    Activations of a healthy training change together: the layers of one kind (names that differ in numbers only) grow
    or shrink by similar factors. Per record, the change of log2(spread) or log2(max_abs) against the second quarter of
    the records is taken, minus the median change of the kind. A layer departs if the median of its last fifth is more
    than `DRIFT_LOG2`, `DRIFT_SIGMAS` robust deviations of its own record-to-record noise, and `DRIFT_STEADY` times its
    own movement within the second quarter (early learning moves layers far) away. Apart from that: all layers together
    (`all layers`), layers whose outputs became zero (`dead`) or not finite (`not finite`).

    Args:
        layer_statistics: table `layer_statistics`; every rank is judged by itself.

    Returns:
        One row per departure: rank_id, layer (missing for all layers), layer_index, measure, what (`departs`, `all
        layers`, `dead`, `not finite`), reference and now (values of the measure), departure_log2, sigmas, onset_step
        (first step from which on it stays beyond half of it). Largest first. Empty with fewer than `FEWEST_RECORDS`
        records.
    """
    rows = whole_rows(layer_statistics)
    found = [row for rank_id, rank in rows.groupby("rank_id") for row in _rank_drift(int(rank_id), rank)]
    table = pd.DataFrame(found, columns=COLUMNS).astype({"layer": "string", "onset_step": "Int64"})
    return table.sort_values("departure_log2", key=lambda s: -s.abs(), kind="stable", ignore_index=True)


def position_profile(layer_statistics: pd.DataFrame, *, step: int | None = None) -> pd.DataFrame:
    """Spread of each layer by token position, at one step.

    Args:
        layer_statistics: table `layer_statistics`; the lowest rank is shown.
        step: recorded step; the last by default.

    Returns:
        One row per (layer, range): layer_index, step, first_position, last_position, spread, change (log2 against the
        layer's median over its ranges), mean, max_abs, zero_share. Empty where no positions are recorded.

    Raises:
        UnknownParameterError: nothing was recorded at that step.
    """
    rows = _first_rank(LAYER_STATISTICS.check(layer_statistics))
    rows = rows[rows["first_position"].notna()]
    if step is not None and step not in set(rows["step"]):
        raise UnknownParameterError(
            f"No layer statistics at step {step}.", fix=f"use one of {sorted(set(rows['step']))[:20]}"
        )
    shown = rows[rows["step"] == (rows["step"].max() if step is None else step)]
    usual = shown.groupby("layer")["spread"].transform("median")
    columns = [
        "layer",
        "layer_index",
        "step",
        "first_position",
        "last_position",
        "spread",
        "change",
        *MEASURES[:1],
        *MEASURES[2:],
    ]
    return shown.assign(change=_log2(shown["spread"]) - _log2(usual))[columns].reset_index(drop=True)


def position_drift(layer_statistics: pd.DataFrame) -> pd.DataFrame:
    """Layers whose spread at late positions is another than at earlier ones: where long contexts degrade.

    The median over the last fifth of the records of log2(spread of the last quarter of the positions / spread of the
    second quarter). The first quarter is left out: the first tokens are special in most models.

    Returns:
        One row per layer with position ranges: rank_id, layer, layer_index, first_position (of the last quarter),
        change_log2, sigmas (against its spread from record to record). Largest first.
    """
    rows = LAYER_STATISTICS.check(layer_statistics)
    rows = rows[rows["first_position"].notna()]
    found = []
    for (rank_id, layer), part in rows.groupby(["rank_id", "layer"]):
        table = part.pivot_table(index="step", columns="first_position", values="spread")
        if table.shape[1] < 4:
            continue
        quarter = table.shape[1] // 4
        late, early = (
            _log2(table.iloc[:, -quarter:]).mean(axis=1),
            _log2(table.iloc[:, quarter : 2 * quarter]).mean(axis=1),
        )
        change = (late - early).tail(max(len(table) // 5, 3))
        noise = MAD_TO_SIGMA * mad(late - early) / np.sqrt(len(change))
        found.append({
            "rank_id": rank_id, "layer": layer, "layer_index": int(part["layer_index"].iloc[0]),
            "first_position": int(table.columns[-quarter]), "change_log2": float(change.median()),
            "sigmas": float(abs(change.median()) / noise) if noise > 0 else np.inf,
        })  # fmt: skip
    columns = ["rank_id", "layer", "layer_index", "first_position", "change_log2", "sigmas"]
    table = pd.DataFrame(found, columns=columns)
    return table.sort_values("change_log2", key=lambda s: -s.abs(), kind="stable", ignore_index=True)


def whole_rows(layer_statistics: pd.DataFrame) -> pd.DataFrame:
    """The rows over all positions."""
    rows = LAYER_STATISTICS.check(layer_statistics)
    return rows[rows["first_position"].isna()].reset_index(drop=True)


def kind_of(layer: str) -> str:
    """Layers of one kind have names that differ in numbers only."""
    return re.sub(r"\d+", "*", layer)


def _rank_drift(rank_id: int, rank: pd.DataFrame) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for measure in LOG_MEASURES:
        values = _matrix(rank, measure)
        if len(values) < FEWEST_RECORDS:
            return found
        found += [_with(rank_id, row, measure) for row in [*_departures(values), *_common(values)]]
    broken = {row["layer"] for row in found}
    found += [
        _with(rank_id, row, "zero_share") for row in _dead(_matrix(rank, "zero_share")) if row["layer"] not in broken
    ]
    return found + [_with(rank_id, row, "max_abs") for row in _not_finite(_matrix(rank, "max_abs"))]


def _with(rank_id: int, row: dict[str, object], measure: str) -> dict[str, object]:
    return {"rank_id": rank_id, "measure": measure, **row}


def _departures(values: pd.DataFrame) -> list[dict[str, object]]:
    changes = _log2(values) - _log2(values.iloc[_quarter(len(values))].median())
    own = changes - _of_peers(changes)
    last = max(len(values) // 5, 3)
    noise = MAD_TO_SIGMA * own.diff().iloc[1:].apply(mad) / np.sqrt(2)
    now = own.tail(last).median()
    sigmas = now.abs() / noise.where(noise > 0)
    smooth = own.rolling(3, center=True, min_periods=1).median().iloc[_quarter(len(own))]
    moved = (smooth.max() - smooth.min()).clip(lower=LEAST_MOVE_LOG2)
    far = np.isfinite(now) & (now.abs() >= DRIFT_LOG2) & (now.abs() >= DRIFT_STEADY * moved)
    found = []
    for key in own.columns[far & ~(sigmas < DRIFT_SIGMAS)]:
        found.append({
            "layer": key[1], "layer_index": key[0], "what": "departs", "departure_log2": float(now[key]),
            "sigmas": float(sigmas[key]), "onset_step": _onset(own[key], float(now[key])),
            **_levels(values[key], last),
        })  # fmt: skip
    return found


def _of_peers(changes: pd.DataFrame) -> pd.DataFrame:
    """Per layer the median change of the other layers of its kind; of all other layers where the kind is small."""
    kinds = np.array([kind_of(name) for _, name in changes.columns])
    table = changes.to_numpy()
    peers = np.zeros_like(table)
    for k, kind in enumerate(kinds):
        others = np.arange(len(kinds)) != k
        same = others & (kinds == kind)
        chosen = same if same.sum() >= FEWEST_PEERS - 1 else others
        if chosen.any():
            peers[:, k] = np.median(table[:, chosen], axis=1)
    return pd.DataFrame(peers, index=changes.index, columns=changes.columns)


def _common(values: pd.DataFrame) -> list[dict[str, object]]:
    changes = (_log2(values) - _log2(values.iloc[_quarter(len(values))].median())).median(axis=1)
    last = max(len(values) // 5, 3)
    now = float(changes.tail(last).median())
    if not abs(now) >= COMMON_LOG2:
        return []
    levels = _levels(values.median(axis=1), last)
    return [{"layer": None, "layer_index": None, "what": "all layers", "departure_log2": now, "sigmas": np.nan,
             "onset_step": _onset(changes, now), **levels}]  # fmt: skip


def _dead(zeros: pd.DataFrame) -> list[dict[str, object]]:
    last = max(len(zeros) // 5, 3)
    found = []
    for key in zeros.columns:
        levels = _levels(zeros[key], last)
        if levels["now"] >= DEAD_ZERO_SHARE > levels["reference"]:
            onset = zeros.index[zeros[key] >= DEAD_ZERO_SHARE][0]
            found.append({"layer": key[1], "layer_index": key[0], "what": "dead", "departure_log2": np.nan,
                          "sigmas": np.nan, "onset_step": int(onset), **levels})  # fmt: skip
    return found


def _not_finite(values: pd.DataFrame) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for key in values.columns:
        broken = values.index[np.isinf(values[key])]
        if len(broken):
            place = {"layer": key[1], "layer_index": key[0], "what": "not finite", "onset_step": int(broken[0])}
            found.append({**place, "departure_log2": np.nan, "sigmas": np.nan, "reference": np.nan, "now": np.inf})
    return found


def _levels(course: pd.Series, last: int) -> dict[str, float]:
    reference = float(course.iloc[_quarter(len(course))].median())
    return {"reference": reference, "now": float(course.tail(last).median())}


def _onset(course: pd.Series, level: float) -> int:
    """First step from which on the course stays beyond half of the level."""
    inside = np.flatnonzero(~(np.sign(level) * course.to_numpy() >= abs(level) / 2))
    return int(course.index[min(inside[-1] + 1, len(course) - 1)] if len(inside) else course.index[0])


def _quarter(records: int) -> slice:
    """The second quarter: behind warm-up and early learning, before what came late."""
    return slice(records // 4, max(records // 2, records // 4 + 1))


def _matrix(rows: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Records x layers, columns (layer_index, layer)."""
    table = rows.pivot_table(index="step", columns=["layer_index", "layer"], values=measure, aggfunc="last")
    return table.sort_index(axis=1)


def _first_rank(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["rank_id"] == rows["rank_id"].min()]


def _change(values: pd.DataFrame, reference: pd.Series, measure: str) -> pd.DataFrame:
    return _log2(values) - _log2(reference) if measure in LOG_MEASURES else values - reference


def _log2(values: Any) -> Any:
    """Of a frame or series; missing where a value is not positive."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log2(values.where(values > 0))
