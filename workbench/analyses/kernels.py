"""Device tasks -> busy time, totals, and operators compared over ranks: slow device, slow operator, more work."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyses.intervals import merge
from workbench.tables import KERNELS

SHORT_KERNEL_US = 10.0  # below what launching one costs the host (5 to 50 us): the device waits for the next
GAP_LONGEST_US = 1000.0  # starting an operator takes less: a longer gap has another reason
MEDIAN_EFFICIENCY = 1.2533  # standard error of a median over that of a mean, normal sample: sqrt(pi / 2)
QUARTILES_TO_SIGMA = 1.349  # distance of the quartiles of a normal sample, in standard deviations
_KIND = ["op_type", "accelerator_core", "input_shapes", "backward"]


def compute_kernels(kernels: pd.DataFrame) -> pd.DataFrame:
    """The rows of table `kernels` that compute, with a known duration."""
    rows = KERNELS.check(kernels)
    return rows[~rows["is_communication"].fillna(False).astype(bool) & rows["duration_us"].notna()]


def scopes(kernels: pd.DataFrame) -> pd.Series:
    """The scope of each task: its name up to its last slash, "" without one, missing where the name is."""
    return kernels["name"].astype("str").str.replace(r"(?s)/?[^/]*$", "", regex=True)


def on_host(kernels: pd.DataFrame) -> bool:
    """Whether the tasks are operators of a CPU run: the host runs them itself, nothing is launched."""
    rows = KERNELS.check(kernels)
    return len(rows) > 0 and bool(rows["accelerator_core"].eq("CPU").fillna(False).all())


def busy_intervals(kernels: pd.DataFrame) -> pd.DataFrame:
    """Times in which at least one task runs, per rank: overlapping and touching tasks are one interval.

    Returns:
        One row per (rank_id, interval): start_ns, end_ns. Sorted. Tasks without a start are left out. Empty in, empty
        out.
    """
    rows = KERNELS.check(kernels).dropna(subset=["start_ns", "duration_us"])
    parts = []
    for rank_id, rank in rows.groupby("rank_id"):
        start = rank["start_ns"].to_numpy(dtype=np.int64)
        busy = merge(start, start + (rank["duration_us"].to_numpy() * 1e3).round().astype(np.int64))
        parts.append(pd.DataFrame({"rank_id": rank_id, "start_ns": busy.start, "end_ns": busy.end}))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["rank_id", "start_ns", "end_ns"])


def kernel_totals(kernels: pd.DataFrame, *, by: str = "op_type") -> pd.DataFrame:
    """Count and time of the compute tasks per rank and operator type, name or core.

    Args:
        kernels: table `kernels`.
        by: op_type, name, accelerator_core, or scope (the name up to its last slash).

    Returns:
        One row per (rank_id, `by`): count, total_us, median_us, short_share (share of tasks below 10 us) and share in
        [0, 1] of the rank's compute time. Largest first per rank. Empty in, empty out.
    """
    rows = compute_kernels(kernels)
    if by == "scope":
        rows = rows.assign(scope=scopes(rows).str.replace(r"^Kernel::KernelLaunch::", "", regex=True))
    rows = rows.assign(short_share=(rows["duration_us"] < SHORT_KERNEL_US).astype(float))
    grouped = rows.groupby(["rank_id", by], dropna=False)
    totals = grouped["duration_us"].agg(count="size", total_us="sum", median_us="median").reset_index()
    totals["short_share"] = grouped["short_share"].mean().to_numpy()
    totals["share"] = totals["total_us"] / totals.groupby("rank_id")["total_us"].transform("sum")
    return totals.sort_values(["rank_id", "total_us"], ascending=[True, False], ignore_index=True)


def short_kernels(kernels: pd.DataFrame) -> pd.DataFrame:
    """How many short compute tasks (below 10 us) each rank runs per step. Operators of a CPU run are not launched.

    Returns:
        One row per rank_id: steps, per_step (tasks a step), short_per_step, short_share in [0, 1], scope (the part of
        the network that has most of the short ones; <NA> where names have no scope). Empty in, empty out.
    """
    columns = ["rank_id", "steps", "per_step", "short_per_step", "short_share", "scope"]
    rows = []
    launched = compute_kernels(kernels)
    launched = launched[launched["accelerator_core"].ne("CPU").fillna(True)]
    for rank_id, rank in launched.groupby("rank_id"):
        short = rank[rank["duration_us"] < SHORT_KERNEL_US]
        steps = max(int(rank["step"].nunique()), 1)
        names = short["name"].value_counts()
        scopes = names.index.str.extract(r"/([A-Za-z]\w*[^/]*)/[^/]+/[^/]+$")[0].str.replace(r"\d+", "*", regex=True)
        top = names.groupby(scopes.to_numpy()).sum().sort_values(ascending=False, kind="stable")
        rows.append((rank_id, steps, len(rank) / steps, len(short) / steps, len(short) / len(rank),
                     str(top.index[0]) if len(top) else pd.NA))  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def host_launches(kernels: pd.DataFrame) -> pd.DataFrame:
    """What starting short operators costs a step of a CPU run, in which the host runs the operators itself.

    Medians over the calls of each operator and over the gaps between operators, so that a busy host changes little. A
    step is a call of the typical operator where the profile does not number the steps.

    Returns:
        One row per rank_id: steps, per_step (operators a step), short_per_step (below 10 us), short_share in [0, 1],
        gap_us (typical gap between operators, of those below 1 ms), cost_us (a step's short operators with their gaps),
        step_us (all operators with their gaps), op_type (most frequent of the short ones). Empty in, empty out.
    """
    columns = [
        "rank_id",
        "steps",
        "per_step",
        "short_per_step",
        "short_share",
        "gap_us",
        "cost_us",
        "step_us",
        "op_type",
    ]
    rows = compute_kernels(kernels).dropna(subset=["start_ns", "name"])
    rows = rows[rows["accelerator_core"].eq("CPU").fillna(False)]
    found = []
    for rank_id, rank in rows.groupby("rank_id"):
        ordered = rank.sort_values("start_ns")
        start = ordered["start_ns"].to_numpy("int64")
        idle_us = (start[1:] - start[:-1]) / 1e3 - ordered["duration_us"].to_numpy("float64")[:-1]
        idle_us = idle_us[(idle_us >= 0) & (idle_us < GAP_LONGEST_US)]
        names = rank.groupby("name").agg(calls=("name", "size"), us=("duration_us", "median"), op=("op_type", "first"))
        steps = int(rank["step"].nunique() or names["calls"].median())
        per_step, short = names["calls"] / max(steps, 1), names["us"] < SHORT_KERNEL_US
        gap_us = float(np.median(idle_us)) if len(idle_us) else 0.0
        cost_us = per_step * (names["us"] + gap_us)
        by_type = per_step[short].groupby(names["op"]).sum()
        all_per_step, short_per_step = float(per_step.sum()), float(per_step[short].sum())
        found.append((rank_id, steps, all_per_step, short_per_step, short_per_step / all_per_step, gap_us,
                      cost_us[short].sum(), cost_us.sum(), by_type.idxmax() if len(by_type) else pd.NA))  # fmt: skip
    return pd.DataFrame(found, columns=columns)


def operator_ratios(kernels: pd.DataFrame) -> pd.DataFrame:
    """Each rank's time for an operator against the other ranks' time for the same operator, core and shapes.

    Same work is compared: calls with equal type, core, input shapes and direction (forward or backward). A rank's time
    is the median over steps of the mean call; the reference is the lower quartile of these over ranks. Not their
    median, because a slow pipeline stage may hold half of the ranks that do this work.

    Args:
        kernels: table `kernels`.

    Returns:
        One row per (rank_id, op_type): calls_per_step, total_us_per_step, ratio (mean over shapes, weighted by time; 1
        is as fast as the reference), ratio_error (its standard error, from the spread over steps; 0 with one step),
        excess_us_per_step (time above the reference). Operators that one rank alone runs are left out. Empty in, empty
        out.
    """
    rows = compute_kernels(kernels).fillna({"input_shapes": "", "accelerator_core": "", "op_type": "unknown"})
    rows = rows.assign(
        backward=rows["name"].str.contains("Gradients", regex=False, na=False), step=rows["step"].fillna(-1)
    )
    steps = rows.groupby("rank_id")["step"].nunique().clip(lower=1)
    calls = rows.groupby(["rank_id", *_KIND, "step"])["duration_us"].agg(calls="size", mean_us="mean").reset_index()
    grouped = calls.groupby(["rank_id", *_KIND])
    kinds = grouped.agg(calls=("calls", "sum"), mean_us=("mean_us", "median"), seen=("step", "size")).reset_index()
    spread = (grouped["mean_us"].quantile(0.75) - grouped["mean_us"].quantile(0.25)).to_numpy()
    kinds["error_us"] = MEDIAN_EFFICIENCY * spread / QUARTILES_TO_SIGMA / np.sqrt(kinds["seen"])
    kinds = kinds[(kinds.groupby(_KIND)["rank_id"].transform("nunique") > 1) & (kinds["mean_us"] > 0)]
    reference = kinds.groupby(_KIND)["mean_us"].transform(lambda m: m.quantile(0.25, interpolation="lower"))
    count = kinds["calls"] / kinds["rank_id"].map(steps)
    kinds = kinds.assign(
        calls_per_step=count, at_reference=reference * count, total_us_per_step=kinds["mean_us"] * count,
        variance=(kinds["error_us"] * count) ** 2,
    )  # fmt: skip
    sums = ["calls_per_step", "total_us_per_step", "at_reference", "variance"]
    totals = kinds.groupby(["rank_id", "op_type"])[sums].sum().reset_index()
    return totals.assign(
        ratio=totals["total_us_per_step"] / totals["at_reference"],
        ratio_error=np.sqrt(totals["variance"]) / totals["at_reference"],
        excess_us_per_step=totals["total_us_per_step"] - totals["at_reference"],
    ).drop(columns=["at_reference", "variance"])


def device_ratios(ratios: pd.DataFrame) -> pd.DataFrame:
    """How much slower a rank's device is: the ratio that half of its compute time is below, over operators.

    One operator type may hold most of the time, and be the only slow one. Therefore the ratio is the smallest of those
    that remain when any one type is left out.

    Args:
        ratios: as `operator_ratios` returns.

    Returns:
        One row per rank_id: ratio (median over operators, weighted by time, without one of them), slow_share (share of
        the compute time in operators that are at least half as much slower as that), excess_us_per_step (of all
        operators). Empty in, empty out.
    """
    rows = []
    for rank_id, rank in ratios.groupby("rank_id"):
        middle = common_ratio(rank)
        slow = rank["ratio"] > 1 + (middle - 1) / 2
        share = float(rank.loc[slow, "total_us_per_step"].sum() / rank["total_us_per_step"].sum())
        rows.append((rank_id, middle, share, float(rank["excess_us_per_step"].sum())))
    return pd.DataFrame(rows, columns=["rank_id", "ratio", "slow_share", "excess_us_per_step"])


def common_ratio(ratios: pd.DataFrame) -> float:
    """Median ratio of a rank's operator types, weighted by their time, whichever one type is left out.

    Args:
        ratios: one row per operator type, at least one: ratio, total_us_per_step.
    """
    ordered = ratios.sort_values("ratio")
    ratio, time = ordered["ratio"].to_numpy(), ordered["total_us_per_step"].to_numpy()
    left_out = [np.arange(len(time)) != i for i in range(len(time))] if len(time) > 1 else [np.ones(1, dtype=bool)]
    middles = []
    for kept in left_out:
        reached = np.cumsum(time[kept]) / time[kept].sum()
        middles.append(float(ratio[kept][int(np.searchsorted(reached, 0.5))]))
    return min(middles)


def compare_kernels(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """Which operator types explain the difference between two profiles, with the noise of each.

    Args:
        before: table `kernels` of the first profile.
        after: of the second.

    Returns:
        One row per op_type of either: before_us and after_us (mean over ranks and steps of the time per step; 0 where
        it does not run), change_us, noise_us (two standard errors of the change, from the spread over ranks and steps;
        NaN with fewer than two of them), is_change (beyond the noise). Largest change first.
    """
    sides = [_per_step(table) for table in (before, after)]
    joined = (
        sides[0]
        .join(sides[1], how="outer", lsuffix="_before", rsuffix="_after")
        .fillna({"mean_before": 0.0, "mean_after": 0.0})
    )
    error = np.sqrt(joined["error_before"].fillna(0.0) ** 2 + joined["error_after"].fillna(0.0) ** 2)
    known = joined["error_before"].notna() | joined["error_after"].notna()
    change = joined["mean_after"] - joined["mean_before"]
    result = pd.DataFrame(
        {"op_type": joined.index, "before_us": joined["mean_before"], "after_us": joined["mean_after"],
         "change_us": change, "noise_us": (2 * error).where(known)}
    )  # fmt: skip
    result["is_change"] = result["change_us"].abs() > result["noise_us"]
    return result.sort_values("change_us", key=np.abs, ascending=False, ignore_index=True)


def _per_step(kernels: pd.DataFrame) -> pd.DataFrame:
    """Mean time per step of each type, and its standard error over (rank, step)."""
    rows = compute_kernels(kernels).fillna({"op_type": "unknown"})
    cells = rows.pivot_table(
        index=["rank_id", "step"], columns="op_type", values="duration_us", aggfunc="sum", fill_value=0.0
    )
    error = cells.std(ddof=1) / np.sqrt(len(cells)) if len(cells) > 1 else cells.mean() * np.nan
    return pd.DataFrame({"mean": cells.mean(), "error": error}).rename_axis("op_type")
