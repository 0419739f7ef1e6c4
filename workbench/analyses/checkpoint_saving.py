"""Saving events and steps -> how long each checkpoint save took, and how long training stood still for it."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from workbench.analyses.step_records import between_records_us
from workbench.tables import EVENTS, SETTINGS, TRAINING_STEPS

SAVE_COLUMNS = ["rank_id", "step", "start_ns", "save_us", "blocked_us", "is_inferred"]
LEAST_GAPS = 3  # regular gaps needed to take them for saves where no line tells of one
_INTERVAL = re.compile(r"save_(checkpoint_)?(steps|interval)$|(checkpoint|save)_(steps|interval|freq)$")
_SIZE = re.compile(r"(checkpoint|ckpt).*(bytes|size)|bytes.*(checkpoint|ckpt)")
_RATE = re.compile(r"write|disk|storage|bandwidth")
_WRITERS = re.compile(r"(ranks?|processes|writers).*writ|writ.*(ranks?|processes)|^(num_)?writers$")
_BYTES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_AMOUNT = re.compile(r"\s*([\d.]+(?:e[+-]?\d+)?)\s*([kmgt]?)i?b(?:ytes)?\s*(/\s*s|ps|per s)?\s*$", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class SavingSummary:
    """Saving over the recorded time. Times in us; shares of the wall time in [0, 1]."""

    saves: int  # saves of the job: steps at which one was made
    every_steps: float  # median distance; NaN for a single save
    save_us: float  # median over saves, of the slowest rank
    step_us: float  # median step as the source states it, else the median time between its records
    is_stated: bool  # whether the source states step times
    blocked_us: float  # in all, of the rank that stood still longest at each save
    elapsed_us: float
    steps: int  # steps that were made meanwhile
    writers: int  # ranks with a save of their own
    ranks: int
    waiting_ranks: int  # ranks that stood still without saving
    is_inferred: bool

    @property
    def blocked_share(self) -> float:
        """Share of the wall time in which training stood still for saving."""
        return self.blocked_us / self.elapsed_us if self.elapsed_us > 0 else float("nan")

    @property
    def blocked_us_per_step(self) -> float:
        """What saving costs a step on average."""
        return self.blocked_us / self.steps if self.steps else float("nan")


def checkpoint_saves(
    events: pd.DataFrame, training_steps: pd.DataFrame, settings: pd.DataFrame | None = None
) -> pd.DataFrame:
    """One row per rank and save: how long it took, and how long training stood still.

    A save of which no line tells the end took at most the gap between the step records around it: that is its time.
    Standing still is the time between the step records around the save, less the stated time of the steps in between,
    and at most the save itself; asynchronous saving therefore costs what it really delays. A save after which no step
    was recorded blocks in the proportion of the others (as a whole where it is alone). Without any saving event, gaps
    at equal distances that agree with a recorded saving interval are taken for saves (`is_inferred`).

    Args:
        events: table `events`; kinds `checkpoint` and `gap` are used.
        training_steps: table `training_steps` with times.
        settings: table `settings`, for the saving interval.

    Returns:
        rank_id, step, start_ns, save_us, blocked_us, is_inferred; in order of time.
    """
    rows = timed_by_gaps(EVENTS.check(events)).dropna(subset=["start_ns", "duration_us"])
    steps = TRAINING_STEPS.check(training_steps).dropna(subset=["time_ns"]).sort_values("time_ns")
    saves, is_inferred = rows[rows["kind"] == "checkpoint"], False
    if saves.empty:
        saves, is_inferred = _regular_gaps(rows[rows["kind"] == "gap"], settings), True
    parts = [
        group.assign(blocked_us=_blocked(group, steps[steps["rank_id"] == rank]))
        for rank, group in saves.groupby("rank_id")
    ]
    if not parts:
        return pd.DataFrame(columns=SAVE_COLUMNS)
    table = pd.concat(parts).rename(columns={"duration_us": "save_us"}).assign(is_inferred=is_inferred)
    return table.sort_values(["start_ns", "rank_id"], ignore_index=True)[SAVE_COLUMNS]


def timed_by_gaps(events: pd.DataFrame) -> pd.DataFrame:
    """Events in which a save without a recorded end lasts as long as the gap between step records at its step.

    What else is known to have happened at that step, an evaluation for instance, is taken off the gap.

    Args:
        events: table `events`; saves that have a time, and those without a gap, stay as they are.
    """
    is_open = (events["kind"] == "checkpoint") & events["duration_us"].isna() & events["step"].notna()
    timed = events.dropna(subset=["step", "duration_us"])
    gaps = timed[timed["kind"] == "gap"]
    if not is_open.any() or gaps.empty:
        return events
    keys = pd.MultiIndex.from_frame(events[["rank_id", "step"]])
    place = ["rank_id", "step"]
    left_us = gaps.groupby(place)["duration_us"].max().sub(
        timed[timed["kind"].isin(("eval", "compile"))].groupby(place)["duration_us"].sum(), fill_value=0.0
    )  # fmt: skip
    gap_us = left_us[left_us > 0].reindex(keys).to_numpy()
    return events.assign(duration_us=events["duration_us"].mask(is_open, pd.Series(gap_us, index=events.index)))


def saving_summary(saves: pd.DataFrame, training_steps: pd.DataFrame) -> SavingSummary | None:
    """The saves of a run in one; None where there is none, or where no two records tell how long the run was.

    Args:
        saves: what `checkpoint_saves` returns.
        training_steps: table `training_steps`.
    """
    steps = TRAINING_STEPS.check(training_steps).dropna(subset=["time_ns"])
    if saves.empty or len(steps) < 2:
        return None
    job = saves.groupby("step")[["save_us", "blocked_us"]].max()
    ends_ns = saves["start_ns"].astype("int64") + (saves["save_us"] * 1000).astype("int64")
    elapsed_us = (max(int(steps["time_ns"].max()), int(ends_ns.max())) - int(steps["time_ns"].min())) / 1e3
    distances = np.diff(np.unique(steps["step"].to_numpy()))
    between = int(np.median(distances)) if len(distances) else 1
    every = np.diff(job.index.to_numpy(dtype=np.int64))
    ranks = set(steps["rank_id"])
    writers = set(saves["rank_id"].dropna().astype(int))
    stated_us = float(steps.loc[~steps["compiled"].fillna(False).astype(bool), "step_us"].median())
    return SavingSummary(
        saves=len(job),
        every_steps=float(np.median(every)) if len(every) else float("nan"),
        save_us=float(job["save_us"].median()),
        step_us=stated_us if stated_us == stated_us else float(between_records_us(steps).median()),
        is_stated=stated_us == stated_us,
        blocked_us=float(job["blocked_us"].sum()),
        elapsed_us=elapsed_us,
        steps=int(steps["step"].max() - steps["step"].min()) + between,
        writers=len(writers),
        ranks=len(ranks | writers),
        waiting_ranks=_waiting_ranks(saves, steps, ranks - writers),
        is_inferred=bool(saves["is_inferred"].any()),
    )


def storage_figures(settings: pd.DataFrame | None) -> dict[str, float]:
    """What settings tell of the storage: bytes_per_rank, write_bytes_per_s, writers; each only where it is there.

    Amounts are read with decimal prefixes (GB, GiB and G alike: only their ratio is used).
    """
    if settings is None:
        return {}
    found: dict[str, float] = {}
    for row in SETTINGS.check(settings).dropna(subset=["name", "value"]).itertuples():
        name, value = str(row.name).lower().rsplit(".", 1)[-1], str(row.value)
        amount = _AMOUNT.match(value)
        if amount:
            number = float(amount[1]) * _BYTES[amount[2].lower()]
            if amount[3] and _RATE.search(name):
                found.setdefault("write_bytes_per_s", number)
            elif not amount[3] and _SIZE.search(name):
                found.setdefault("bytes_per_rank", number)
        elif _WRITERS.search(name) and (digits := re.match(r"\s*(\d+)\b", value)):
            found.setdefault("writers", float(digits[1]))
    return found


def saving_interval(settings: pd.DataFrame | None) -> int | None:
    """Steps between saves that the settings ask for; None where they do not tell."""
    if settings is None:
        return None
    for row in SETTINGS.check(settings).dropna(subset=["name", "value"]).itertuples():
        digits = re.match(r"\s*(\d+)\b", str(row.value))
        if digits and int(digits[1]) > 0 and _INTERVAL.search(str(row.name).lower()):
            return int(digits[1])
    return None


def _blocked(saves: pd.DataFrame, steps: pd.DataFrame) -> pd.Series:
    """Time that training stood still at each save of one rank."""
    times, numbers = steps["time_ns"].to_numpy(dtype=np.int64), steps["step"].to_numpy(dtype=np.int64)
    step_us = steps["step_us"].to_numpy(dtype=float)
    starts = saves["start_ns"].to_numpy(dtype=np.int64)
    ends = starts + (saves["duration_us"].to_numpy() * 1000).astype(np.int64)
    blocked = []
    for start, end in zip(starts, ends, strict=True):
        before = int(np.searchsorted(times, start, side="right")) - 1
        after = int(np.searchsorted(times, end, side="left"))
        if before < 0 or after >= len(times):
            blocked.append(float("nan"))
            continue
        rows = step_us[before + 1 : after + 1]
        stated = (numbers[after] - numbers[before]) * (rows[~np.isnan(rows)].mean() if (~np.isnan(rows)).any() else 0.0)
        excess = (times[after] - times[before]) / 1e3 - stated
        blocked.append(float(np.clip(excess, 0.0, (end - start) / 1e3)))
    found = pd.Series(blocked, index=saves.index)
    share = float((found / saves["duration_us"]).median()) if found.notna().any() else 1.0
    return found.fillna(saves["duration_us"] * share)


def _regular_gaps(gaps: pd.DataFrame, settings: pd.DataFrame | None) -> pd.DataFrame:
    """Gaps between step records at the recorded saving interval; empty where there are few, or they do not agree."""
    interval = saving_interval(settings)
    known = gaps.dropna(subset=["step"])
    regular = known[known["step"].astype("int64") % interval == 0] if interval else known.iloc[:0]
    return regular if regular["step"].nunique() >= LEAST_GAPS and 2 * len(regular) > len(known) else known.iloc[:0]


def _waiting_ranks(saves: pd.DataFrame, steps: pd.DataFrame, others: set[int]) -> int:
    """Ranks without a save of their own that stood still for at least half of most saves."""
    own = saves.rename(columns={"save_us": "duration_us"})
    job = own.sort_values("duration_us").drop_duplicates("step", keep="last")
    waits = [_blocked(job, steps[steps["rank_id"] == rank]) for rank in others]
    return sum(bool((w >= 0.5 * job["duration_us"]).mean() > 0.5) for w in waits)
