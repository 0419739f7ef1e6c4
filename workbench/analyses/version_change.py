"""Two runs of one job -> how much slower the later one is beyond noise, what changed, in which operators."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from workbench.analyses.log_runs import EARLIER_WORDS, LATER_WORDS, name_of_run, named_in_order

BLOCKS = 5  # of each run's steps; noise between them is noise between runs of one job
STEPS_LEAST = 10
UNITS = {"step": "step_us", "sample": "samples_per_s", "token": "tokens_per_s"}  # time per what -> its column
OTHER_LOSS = 0.05  # losses of one job at the same steps differ by less, also with another seed or kernel
FIRST_STEPS = 10  # in which a warm-up has hardly begun
OTHER_SIZE = frozenset(
    ("global_batch_size", "batch_size", "batch_per_card", "device_num", "cards", "world_size", "seq_length")
)
OTHER_MODEL = frozenset(
    ("hidden_size", "num_layers", "num_hidden_layers", "num_heads", "num_attention_heads", "intermediate_size",
     "vocab_size", "model_name", "model_type", "architecture", "architectures", "model_config.type")
)  # fmt: skip
SAME_OPERATOR = 0.02  # healthy operators differ by 1 to 2 % from profile to profile
_VERSION_NAME = re.compile(
    r"version|library|framework|driver|firmware|cann|toolkit|mindspore|mindformers|torch|cuda|nccl|hccl|package|kernel"
    r"|compiler|image|commit",
    re.IGNORECASE,
)
_VERSION_VALUE = re.compile(r"v?\d+\.\d+\.\w+([.+-]\w+)*")


@dataclass(frozen=True, kw_only=True)
class Slower:
    """Steady steps of two runs.

    Attributes:
        before_us, after_us: median step; change_share: of after against before.
        per: what these times are of: "step", or "sample" or "token" where a run states its throughput only.
        throughput_share: change of the throughput (below 0: less).
        spread_share: largest spread of a run's block medians against its median.
        is_real: whether all block medians of the one lie beyond all of the other.
        loss_share: median relative difference of the losses at common steps; NaN where not known.
        norm_share: the same of the gradient norms.
        steps: steady steps of the shorter run.
    """

    before_us: float
    after_us: float
    change_share: float
    throughput_share: float
    spread_share: float
    is_real: bool
    loss_share: float
    norm_share: float
    steps: int
    per: str = "step"


def slower(before: pd.DataFrame, after: pd.DataFrame) -> Slower | None:
    """Compare the step times of two runs; None where one has fewer than `STEPS_LEAST` steady steps.

    Args:
        before: table `training_steps` of the earlier run.
        after: of the later one.
    """
    per = next((p for p in UNITS if all(len(_steady(t, p)) >= STEPS_LEAST for t in (before, after))), None)
    if per is None:
        return None
    times = [_steady(t, per) for t in (before, after)]
    blocks = [_block_medians(t) for t in times]
    medians = [float(t.median()) for t in times]
    spread = max(float(np.ptp(b)) / m for b, m in zip(blocks, medians, strict=True))
    return Slower(
        before_us=medians[0],
        after_us=medians[1],
        change_share=medians[1] / medians[0] - 1,
        throughput_share=_throughput(after) / _throughput(before) - 1,
        spread_share=spread,
        is_real=bool(blocks[1].min() > blocks[0].max() or blocks[1].max() < blocks[0].min()),
        loss_share=_difference(before, after, "loss"),
        norm_share=_difference(before, after, "gradient_norm"),
        steps=min(len(t) for t in times),
        per=per,
    )


def is_other_job(before: pd.DataFrame, after: pd.DataFrame, items: pd.DataFrame | None) -> bool:
    """Whether two runs are of different jobs: their times then say nothing about a version.

    They are where their size or model differs, and where nothing tells that they are one: neither settings of both, nor
    words such as before and after in the names, nor losses that are alike.

    Args:
        before: table `training_steps` of the earlier run.
        after: of the later one.
        items: as `changed_items` returns.
    """
    if before["rank_id"].nunique() != after["rank_id"].nunique() or _ends(items) & (OTHER_SIZE | OTHER_MODEL):
        return True
    told = items is not None or named_in_order(*(t["source"].dropna().unique().tolist() for t in (before, after)))
    return not told and not _difference(before, after, "loss") <= OTHER_LOSS


def is_other_model(before: pd.DataFrame, after: pd.DataFrame, items: pd.DataFrame | None) -> bool:
    """Whether two jobs, which may differ in devices and batch, train different models.

    Settings say so, or the first loss that both have, within `FIRST_STEPS`: at a random start it is that of the
    vocabulary, on resuming that of the checkpoint.

    Args:
        before: table `training_steps` of the earlier run.
        after: of the later one.
        items: as `changed_items` returns.
    """
    if _ends(items) & OTHER_MODEL:
        return True
    early = [t[(t["step"] <= FIRST_STEPS) & (t["loss"] > 0)].groupby("step")["loss"].mean() for t in (before, after)]
    common = early[0].index.intersection(early[1].index).sort_values()[:1]
    return bool(((early[1][common] / early[0][common] - 1).abs() > OTHER_LOSS).any())


def changed_items(settings: pd.DataFrame | None, sources: Mapping[int, list[str]]) -> pd.DataFrame | None:
    """Settings that differ between two runs; None where nothing tells the settings of both.

    They are told by a file with the columns before and after, or by files of their own beside each run's logs.

    Args:
        settings: table `settings`.
        sources: files of the earlier (0) and the later (1) run.

    Returns:
        One row per setting: name, before, after, is_version; and in `attrs["same"]` how many agree.
    """
    values = _before_and_after(settings, sources)
    if values is None:
        return None
    before, after = values
    names = [n for n in before if n in after]
    rows = [
        {"name": n, "before": before[n], "after": after[n], "is_version": _is_version(n, before[n], after[n])}
        for n in names
        if before[n] != after[n]
    ]
    changed = pd.DataFrame(rows, columns=["name", "before", "after", "is_version"])
    changed.attrs["same"] = len(names) - len(rows)
    return changed


def settings_of_runs(
    settings: pd.DataFrame | None, sources: Mapping[int, list[str]]
) -> tuple[dict[str, str], dict[str, str]]:
    """Settings of the earlier and of the later run by name, empty where nothing tells them.

    Args:
        settings: table `settings`.
        sources: files of the earlier (0) and the later (1) run.
    """
    if settings is None:
        return {}, {}
    rows = settings.dropna(subset=["name", "value"])
    told: list[dict[str, str]] = []
    for prefix in ("before.", "after."):
        own = rows[rows["name"].str.startswith(prefix)]
        told.append(dict(zip(own["name"].str.removeprefix(prefix), own["value"], strict=True)))
    if all(told):
        return told[0], told[1]
    names = [str(s) for s in rows["source"].dropna().unique()]
    run_of = {**_runs_of_files(names, sources), **{s: r for r, own in sources.items() for s in own}}
    plain = rows[~rows["name"].str.startswith("log.")]
    runs = plain["source"].map(run_of)
    parts = [dict(zip(plain["name"][runs == r], plain["value"][runs == r], strict=True)) for r in (0, 1)]
    return parts[0], parts[1]


def operator_changes(
    kernel_totals: pd.DataFrame | None, files: pd.DataFrame, sources: Mapping[int, list[str]]
) -> pd.DataFrame | None:
    """Time per operator type before and after, None where the profiles of the two runs cannot be told apart.

    Args:
        kernel_totals: table `kernel_totals`; each profile is a window.
        files: list of files of the run (file, rank_id, window, tables).
        sources: logs of the earlier (0) and the later (1) run.

    Returns:
        Where names do not tell, of two profiles the longer counts as the later run's: call it for a slower run only.

        One row per operator type: op_type, before_us, after_us (means over ranks), delta_us, change (gone, new, same,
        slower or faster), largest change first.
    """
    if kernel_totals is None:
        return None
    rows = files[files["tables"].str.contains("kernel_totals", na=False)]
    run_of = _runs_of_files([str(f) for f in rows["file"]], sources)
    named = {(int(r.rank_id), int(r.window)): run_of[str(r.file)] for r in rows.itertuples() if str(r.file) in run_of}
    windows = named if set(named.values()) == {0, 1} else _by_total(kernel_totals)
    if windows is None:
        return None
    keys = zip(kernel_totals["rank_id"], kernel_totals["window"], strict=True)
    placed = kernel_totals.assign(run=[windows.get((int(r), int(w))) for r, w in keys]).dropna(subset=["run"])
    means = [part.groupby("op_type")["total_us"].sum() / part["rank_id"].nunique() for _, part in placed.groupby("run")]
    table = pd.concat(means, axis=1, keys=["before_us", "after_us"]).fillna(0.0).rename_axis("op_type").reset_index()
    table["delta_us"] = table["after_us"] - table["before_us"]
    table["change"] = np.select(
        [table["after_us"] == 0, table["before_us"] == 0, table["delta_us"].abs() <= SAME_OPERATOR * table["before_us"],
         table["delta_us"] > 0],
        ["gone", "new", "same", "slower"],
        default="faster",
    )  # fmt: skip
    return table.sort_values("delta_us", key=lambda d: -d.abs(), kind="stable", ignore_index=True)


def _ends(items: pd.DataFrame | None) -> set[str]:
    """Last words, and pairs of words, of the names of settings."""
    names = [] if items is None else [str(n) for n in items["name"]]
    return {".".join(n.split(".")[-parts:]) for n in names for parts in (1, 2)}


def _by_total(kernel_totals: pd.DataFrame) -> dict[tuple[int, int], int] | None:
    """Two profiles whose names tell nothing: the longer one is that of the later run, which is known to be slower."""
    totals = kernel_totals.groupby(["rank_id", "window"])["total_us"].sum()
    if len(totals) != 2 or len(set(totals)) != 2:
        return None
    places = [(int(rank), int(window)) for rank, window in totals.sort_values().index]
    return {places[0]: 0, places[1]: 1}


def _steady(steps: pd.DataFrame, per: str) -> pd.Series:
    """Time per step, sample or token at each step, without compilations and the first printed step of each rank."""
    timed = steps.sort_values(["rank_id", "step"])
    later = timed[timed.duplicated("rank_id") & ~timed["compiled"].fillna(False).astype(bool)]
    values = later[UNITS[per]].where(later[UNITS[per]] > 0)
    return (values if per == "step" else 1e6 / values).groupby(later["step"]).max().dropna()


def _block_medians(times: pd.Series) -> np.ndarray:
    return np.array([float(np.median(part)) for part in np.array_split(times.to_numpy(), BLOCKS)])


def _throughput(steps: pd.DataFrame) -> float:
    for column in ("samples_per_s", "tokens_per_s"):
        if steps[column].notna().sum() >= STEPS_LEAST:
            return float(steps[column].iloc[1:].median())
    return 1e6 / float(_steady(steps, "step").median())


def _difference(before: pd.DataFrame, after: pd.DataFrame, column: str) -> float:
    both = before.groupby("step")[column].mean().to_frame("a").join(after.groupby("step")[column].mean().rename("b"))
    known = both.dropna()
    if known.empty:
        return float("nan")
    return float(((known["b"] - known["a"]).abs() / known["a"].abs()).median())


def _before_and_after(
    settings: pd.DataFrame | None, sources: Mapping[int, list[str]]
) -> tuple[dict[str, str], dict[str, str]] | None:
    values = settings_of_runs(settings, sources)
    return values if all(values) else None


def _runs_of_files(names: list[str], sources: Mapping[int, list[str]]) -> dict[str, int]:
    """Which run files belong to: by words that only one run's logs have, or by words such as before and after."""
    found = name_of_run(names, sources)
    if set(found.values()) == {0, 1}:
        return found
    words = {n: set(re.findall(r"[a-z]+", n.lower())) for n in names}
    early, late = set(EARLIER_WORDS), set(LATER_WORDS)
    return {n: int(bool(w & late)) for n, w in words.items() if bool(w & early) != bool(w & late)}


def _is_version(name: str, before: str, after: str) -> bool:
    by_value = all(_VERSION_VALUE.fullmatch(v.strip()) for v in (before, after))
    return by_value or _VERSION_NAME.search(name) is not None
