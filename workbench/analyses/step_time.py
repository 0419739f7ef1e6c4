"""Recorded steps to their time: distribution, outliers with their cause, shares, throughput."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyses.event_time import event_time
from workbench.analyses.statistics import MAD_TO_SIGMA, mad
from workbench.analyses.step_records import measured_us
from workbench.tables import TRAINING_STEPS

WARMUP_STEPS = 2  # first steps of a rank: compilation, allocation, filling the data queue
OUTLIER_SIGMAS = 8.0  # a normal tail of 1e-15: only real stalls, also in runs of millions of steps
OUTLIER_SHARE = 0.5  # ... and at least this share of the typical step, for runs with next to no spread
BASELINE_STEPS = 51  # steps around a step that say what is typical there
CAUSES = ("checkpoint", "eval", "compile", "data_wait", "gc", "profile", "callbacks", "unknown")
EVENT_CAUSES = ("checkpoint", "eval", "gc", "profile")
EXCESS_PARTS = ("data_wait", "callbacks", "run")
EXCESS_COLUMNS = ("typical_us", "excess_us", "sigmas", *(f"{part}_excess_us" for part in EXCESS_PARTS))


def timed_steps(training_steps: pd.DataFrame, *, warmup_steps: int = WARMUP_STEPS) -> pd.DataFrame:
    """Steps with their wall time and whether timing statistics may use them.

    Args:
        training_steps: table `training_steps`, in any row order.
        warmup_steps: first steps of each rank to leave out.

    Returns:
        One row per (rank_id, step): time_ns, step_us, data_wait_us, callbacks_us (both 0 where not recorded), wall_us =
        step_us + callbacks_us, run_us = step_us - data_wait_us, compiled, and `excluded`: "" for a steady step, else
        "compiled", "warm-up" or "no time".

    Raises:
        MissingColumnsError: `training_steps` lacks a column.
    """
    steps = TRAINING_STEPS.check(training_steps).sort_values(["rank_id", "step"], ignore_index=True)
    steps["step_us"] = measured_us(steps)
    compiled = steps["compiled"].fillna(False).astype(bool)
    excluded = np.select(
        [steps["step_us"].isna(), compiled, steps.groupby("rank_id").cumcount() < warmup_steps],
        ["no time", "compiled", "warm-up"],
        default="",
    )
    wait, callbacks = steps["data_wait_us"].fillna(0.0), steps["callbacks_us"].fillna(0.0)
    return steps[["rank_id", "step", "time_ns", "step_us"]].assign(
        data_wait_us=wait,
        callbacks_us=callbacks,
        wall_us=steps["step_us"] + callbacks,
        run_us=steps["step_us"] - wait,
        compiled=compiled,
        excluded=excluded,
    )


def step_time_distribution(training_steps: pd.DataFrame, *, warmup_steps: int = WARMUP_STEPS) -> pd.DataFrame:
    """Distribution of the steady steps' time per rank, callbacks (saving, evaluating) excluded.

    Returns:
        One row per rank_id: steps (steady ones), compiled_steps, warmup_steps, untimed_steps, median_us, mean_us,
        p5_us, p95_us, p99_us, mad_us (not scaled), max_us. NaN where a rank has no steady step. Empty in, empty out.

    Raises:
        MissingColumnsError: `training_steps` lacks a column.
    """
    timed = timed_steps(training_steps, warmup_steps=warmup_steps)
    rows = [
        {
            "rank_id": rank_id,
            "steps": int((rank["excluded"] == "").sum()),
            "compiled_steps": int((rank["excluded"] == "compiled").sum()),
            "warmup_steps": int((rank["excluded"] == "warm-up").sum()),
            "untimed_steps": int((rank["excluded"] == "no time").sum()),
            **_quantiles(rank.loc[rank["excluded"] == "", "step_us"]),
        }
        for rank_id, rank in timed.groupby("rank_id")
    ]
    columns = ["rank_id", "steps", "compiled_steps", "warmup_steps", "untimed_steps", "median_us", "mean_us", "p5_us",
               "p95_us", "p99_us", "mad_us", "max_us"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def step_outliers(
    training_steps: pd.DataFrame, events: pd.DataFrame | None = None, *, warmup_steps: int = WARMUP_STEPS
) -> pd.DataFrame:
    """Steps that took far longer than the steps around them, with what took the time.

    Definition: wall_us exceeds the running median over `BASELINE_STEPS` steady steps of the rank by more than
    `OUTLIER_SIGMAS` times 1.4826 MAD of all such differences and by more than `OUTLIER_SHARE` of that median.
    Medians, so that neither the stalls themselves nor a slow drift decide what is typical. Warm-up steps are never
    outliers; a compilation after them is one.

    The cause is the largest part of the excess: events of the step (checkpoint, eval, gc, profile), a compilation, data
    wait above its median, callbacks above theirs, else unknown.

    Args:
        training_steps: table `training_steps`.
        events: table `events`, or None.
        warmup_steps: first steps of each rank to leave out.

    Returns:
        One row per outlying (rank_id, step): wall_us, typical_us, excess_us, sigmas, cause (one of `CAUSES`), cause_us.
        Sorted by rank and step. Empty in, empty out.

    Source: median and MAD: Hampel, JASA 69 (1974); thresholds ours, reasons at the constants.
    """
    timed = timed_steps(training_steps, warmup_steps=warmup_steps)
    ranks = [_rank_outliers(rank) for _, rank in timed.groupby("rank_id")]
    columns = ["rank_id", "step", "wall_us", "typical_us", "excess_us", "sigmas", "cause", "cause_us"]
    if not ranks:
        return pd.DataFrame(columns=columns)
    slow = [rank for rank in ranks if len(rank)]  # of thousands of ranks, few
    outliers = pd.concat(slow, ignore_index=True) if slow else ranks[0].assign(**dict.fromkeys(EXCESS_COLUMNS, np.nan))
    return _with_cause(outliers, event_time(outliers, events, EVENT_CAUSES))[columns]


def step_scatter(training_steps: pd.DataFrame, *, warmup_steps: int = WARMUP_STEPS) -> float:
    """How far an ordinary step lies from the typical one around it: robust standard deviation, as a share of it.

    Single stalls do not count, nor does a slow drift. The median over ranks; NaN without steady steps. Recorded steps
    of an idle host scatter by 1 to 5 %, of a host whose cores are shared by 20 to 50 %.
    """
    timed = timed_steps(training_steps, warmup_steps=warmup_steps)
    shares = []
    for _, wall in timed[timed["excluded"] == ""].groupby("rank_id")["wall_us"]:
        typical = wall.rolling(BASELINE_STEPS, center=True, min_periods=1).median()
        shares.append(MAD_TO_SIGMA * float((wall / typical.where(typical > 0) - 1).abs().median()))
    return float(np.median(shares)) if shares else float("nan")


def job_outliers(outliers: pd.DataFrame) -> pd.DataFrame:
    """Outlying steps of the whole job: one row per step, blamed on the rank that has a reason.

    In a synchronous job all ranks wait for the one that stalls, and only that one knows why. So of the ranks of a step
    the one with the largest known cause is named, and "unknown" only where no rank has another.

    Args:
        outliers: as `step_outliers` returns.

    Returns:
        One row per step: rank_id, wall_us, typical_us, excess_us, sigmas, cause, cause_us of the named rank, and ranks
        (how many ranks were slow at the step).
    """
    known = outliers["cause_us"].where(outliers["cause"] != "unknown", -1.0)
    ordered = outliers.assign(known_us=known, ranks=outliers.groupby("step")["rank_id"].transform("size"))
    first = ordered.sort_values(["step", "known_us", "excess_us"], ascending=[True, False, False])
    return first.drop_duplicates("step").drop(columns="known_us").reset_index(drop=True)


def time_shares(training_steps: pd.DataFrame, events: pd.DataFrame | None = None) -> pd.DataFrame:
    """Where each rank's wall time of the recorded steps went.

    Returns:
        One row per (rank_id, part): total_us and share in [0, 1]. Parts: run, data_wait, compile (run time of compiling
        steps above the rank's median), checkpoint and eval (events inside callbacks), callbacks (the rest of them).
        A rank's shares sum to 1; NaN where its total is 0. Empty in, empty out.
    """
    timed = timed_steps(training_steps, warmup_steps=0)
    timed = timed[timed["excluded"] != "no time"]
    typical = timed["run_us"].where(~timed["compiled"]).groupby(timed["rank_id"]).transform("median")
    above = (timed["run_us"] - typical.fillna(0.0)).clip(lower=0.0).where(timed["compiled"], 0.0)
    event_us = event_time(timed, events, EVENT_CAUSES)
    saving = event_us["checkpoint"].clip(upper=timed["callbacks_us"])
    evaluating = event_us["eval"].clip(upper=timed["callbacks_us"] - saving)
    parts = pd.DataFrame(
        {
            "rank_id": timed["rank_id"],
            "run": timed["run_us"] - above,
            "data_wait": timed["data_wait_us"],
            "compile": above,
            "checkpoint": saving,
            "eval": evaluating,
            "callbacks": timed["callbacks_us"] - saving - evaluating,
        }
    )
    totals = parts.groupby("rank_id", as_index=False).sum().melt("rank_id", var_name="part", value_name="total_us")
    whole = totals.groupby("rank_id")["total_us"].transform("sum")
    return totals.assign(share=totals["total_us"] / whole.where(whole > 0)).sort_values("rank_id", ignore_index=True)


def throughput(training_steps: pd.DataFrame, *, warmup_steps: int = WARMUP_STEPS) -> pd.DataFrame:
    """Tokens and samples per second, per rank and for the job.

    Returns:
        One row per rank_id and, last, one for the job (rank_id <NA>), the sum over ranks: right where each rank has its
        own data (data parallelism); ranks that share a batch count it each. tokens_per_s and samples_per_s: steady
        steps over their step time. tokens_per_s_overall: all steps over wall time, compiling, saving and evaluating
        included. NaN where the batch size is not recorded. Empty in, empty out.
    """
    steps = TRAINING_STEPS.check(training_steps).sort_values(["rank_id", "step"], ignore_index=True)
    timed = timed_steps(steps, warmup_steps=warmup_steps)
    rows = []
    for rank_id, rank in timed.assign(tokens=steps["tokens"], samples=steps["samples"]).groupby("rank_id"):
        steady = rank[rank["excluded"] == ""]
        rows.append(
            {
                "rank_id": rank_id,
                "tokens_per_s": _rate(steady["tokens"], steady["step_us"]),
                "samples_per_s": _rate(steady["samples"], steady["step_us"]),
                "tokens_per_s_overall": _rate(rank["tokens"], rank["wall_us"]),
            }
        )
    columns = ["rank_id", "tokens_per_s", "samples_per_s", "tokens_per_s_overall"]
    per_rank = pd.DataFrame(rows, columns=columns).astype({"rank_id": "Int64"})
    if per_rank.empty:
        return per_rank
    job = per_rank[columns[1:]].sum(skipna=False).to_frame().T.assign(rank_id=pd.array([pd.NA], dtype="Int64"))
    return pd.concat([per_rank, job[columns]], ignore_index=True)


def rank_step_times(
    training_steps: pd.DataFrame, *, warmup_steps: int = WARMUP_STEPS, common_steps: bool = False
) -> pd.DataFrame:
    """How long each rank's own work took, against the other ranks: who is late, and not who waits.

    Args:
        training_steps: table `training_steps`.
        warmup_steps: first steps of each rank to leave out.
        common_steps: take the steps that all ranks recorded only, so that ranks are compared over the same time.

    Returns:
        One row per rank_id: steps, run_us, data_wait_us, callbacks_us, step_us and wall_us (medians of steady steps),
        elapsed_us (median time from the end of one step to the end of the next; NaN where times are not recorded),
        excess_us (median over steps of step_us minus the median rank's step_us). Empty in, empty out.
    """
    timed = timed_steps(training_steps, warmup_steps=warmup_steps)
    elapsed_us = timed.groupby("rank_id")["time_ns"].diff().astype("float64") / 1e3
    steady = timed.assign(elapsed_us=elapsed_us)[timed["excluded"] == ""]
    if common_steps:
        recorded = steady.groupby("step")["rank_id"].transform("nunique")
        steady = steady[recorded == steady["rank_id"].nunique()]
    behind = steady["step_us"] - steady.groupby("step")["step_us"].transform("median")
    grouped = steady.assign(excess_us=behind).groupby("rank_id")
    medians = grouped[
        ["run_us", "data_wait_us", "callbacks_us", "step_us", "wall_us", "elapsed_us", "excess_us"]
    ].median()
    return medians.assign(steps=grouped.size()).reset_index()


def _quantiles(step_us: pd.Series) -> dict[str, float]:
    names = {"median_us": 0.5, "p5_us": 0.05, "p95_us": 0.95, "p99_us": 0.99}
    return {n: float(step_us.quantile(q)) for n, q in names.items()} | {
        "mean_us": float(step_us.mean()),
        "mad_us": mad(step_us),
        "max_us": float(step_us.max()),
    }


def _rank_outliers(rank: pd.DataFrame) -> pd.DataFrame:
    """Outliers of one rank in step order, with `EXCESS_COLUMNS`; without them where there is none."""
    excluded, wall = rank["excluded"].to_numpy(), rank["wall_us"].to_numpy("float64")
    is_steady = excluded == ""
    steady = pd.Series(np.where(is_steady, wall, np.nan))
    typical = steady.rolling(BASELINE_STEPS, center=True, min_periods=1).median().ffill().bfill().to_numpy()
    excess = wall - typical
    sigma = MAD_TO_SIGMA * mad(excess[is_steady])
    candidates = (is_steady | (excluded == "compiled")) & (np.arange(len(rank)) >= WARMUP_STEPS)
    found = candidates & (excess > OUTLIER_SIGMAS * sigma) & (excess > OUTLIER_SHARE * typical)
    hit = rank[found]
    if hit.empty:
        return hit
    of_steady = rank[is_steady]
    parts = {f"{part}_excess_us": hit[f"{part}_us"] - of_steady[f"{part}_us"].median() for part in EXCESS_PARTS}
    sigmas = excess[found] / sigma if sigma > 0 else np.inf
    return hit.assign(typical_us=typical[found], excess_us=excess[found], sigmas=sigmas, **parts)


def _with_cause(outliers: pd.DataFrame, event_us: pd.DataFrame) -> pd.DataFrame:
    """Add cause and cause_us: the largest part of the excess; what no part explains is unknown."""
    parts = event_us.clip(upper=outliers["excess_us"], axis=0)
    in_callbacks = parts["checkpoint"] + parts["eval"]
    parts["callbacks"] = outliers["callbacks_excess_us"] - in_callbacks
    parts["compile"] = outliers["run_excess_us"].where(outliers["compiled"], 0.0)
    parts["data_wait"] = outliers["data_wait_excess_us"]
    parts = parts.clip(lower=0.0)
    parts["unknown"] = (outliers["excess_us"] - parts.sum(axis=1)).clip(lower=0.0)
    if parts.empty:
        return outliers.assign(cause=pd.Series(dtype="str"), cause_us=pd.Series(dtype="float64"))
    return outliers.assign(cause=parts.idxmax(axis=1), cause_us=parts.max(axis=1))


def _rate(amount: pd.Series, duration_us: pd.Series) -> float:
    known = amount.notna() & duration_us.notna()
    seconds = float(duration_us[known].sum()) / 1e6
    return float(amount[known].sum()) / seconds if seconds > 0 else float("nan")
