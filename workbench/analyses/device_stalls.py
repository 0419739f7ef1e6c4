"""Profiled steps -> the few that took far longer than the rest, what was longer in them, and who held them up."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd

from workbench.analyses.device_steps import PARTS
from workbench.analyses.statistics import MAD_TO_SIGMA, mad
from workbench.tables import COLLECTIVES, HOST_OPS

STALL_SIGMAS = 8.0  # a normal tail of 1e-15
STALL_SHARE = 0.10  # and at least this share of the typical step: profiles of few steps have next to no spread
STEPS_LEAST = 4
_COLUMNS = ["window", "step", "wall_us", "typical_us", "excess_us", "part", "ranks_share", "cause"]


def device_stalls(steps: pd.DataFrame, host_ops: pd.DataFrame | None = None) -> pd.DataFrame:
    """Steps in which the job took far longer than in its median step. The first of each window is left out.

    Args:
        steps: as `device_steps` returns.
        host_ops: table `host_ops`, or None; the total time of the data pipeline bounds what data stalls can explain.

    Returns:
        One row per stalled (window, step): wall_us and typical_us (median over ranks), excess_us, part (the column of
        `PARTS` that grew most on the median rank, or on one rank if that is not waiting), ranks_share (share of ranks
        on which it grew by half the excess), cause: recompile (compile events, or idle before the first task on most
        ranks at once that data cannot explain), else stall_steps. Empty in, empty out.
    """
    later = steps[steps.duplicated(["rank_id", "window"])]
    job = later.groupby(["window", "step"], dropna=False)["wall_us"].median().reset_index()
    if len(job) < STEPS_LEAST:
        return pd.DataFrame(columns=_COLUMNS)
    typical = float(job["wall_us"].median())
    excess = job["wall_us"] - typical
    limit = max(STALL_SIGMAS * MAD_TO_SIGMA * mad(excess), STALL_SHARE * typical)
    found = job.assign(typical_us=typical, excess_us=excess)[excess > limit]
    grown = _grown(later)
    rows = []
    for row in found.itertuples(index=False):
        of_step = grown[(grown["step"] == row.step) & (grown["window"].eq(row.window).fillna(True))]
        rows.append(_explained(row.step, of_step, float(str(row.excess_us))))
    stalls = found.assign(**pd.DataFrame(rows, columns=["part", "ranks_share"], index=found.index))
    return stalls.assign(cause=_causes(stalls, host_ops))[_COLUMNS].reset_index(drop=True)


def stalled_rank(stall: Mapping[Hashable, Any], steps: pd.DataFrame, collectives: pd.DataFrame | None) -> int | None:
    """The rank that held up a stalled step, None where no single one did.

    Time of its own: the rank on which the part grew, if it is one. Waiting or a transfer: the rank that waits least in
    the collective with the longest transfer, or in the longest, if the others wait for most of it.
    """
    if stall["part"] not in ("transfer_us", "late_rank_us", "pipeline_wait_us"):
        grown = _grown(steps[steps.duplicated(["rank_id", "window"])])
        of_step = grown[grown["step"] == stall["step"]].set_index("rank_id")[stall["part"]]
        own = of_step[of_step > 0.5 * stall["excess_us"]]
        return int(own.index[0]) if len(own) == 1 else None
    if collectives is None:
        return None
    rows = COLLECTIVES.check(collectives)
    rows = rows[(rows["step"] == stall["step"]) & rows["wait_us"].notna() & ~rows["is_p2p"].fillna(False).astype(bool)]
    for length_us in (rows["elapsed_us"] - rows["wait_us"], rows["elapsed_us"]):
        if length_us.notna().any():
            longest = rows.loc[length_us.idxmax()]
            of_one = rows[(rows["group_id"] == longest["group_id"]) & (rows["name"] == longest["name"])]
            waits = of_one.set_index("rank_id")["wait_us"].sort_values()
            if len(waits) > 1 and waits.iloc[1] - waits.iloc[0] > 0.5 * stall["excess_us"]:
                return int(waits.index[0])
    return None


def _grown(steps: pd.DataFrame) -> pd.DataFrame:
    """Each part of each step above the rank's median of that part."""
    medians = steps.groupby(["rank_id", "window"], dropna=False)[list(PARTS)].transform("median")
    return steps[["rank_id", "window", "step"]].join(steps[list(PARTS)] - medians)


def _explained(step: object, grown: pd.DataFrame, excess_us: float) -> tuple[str, float]:
    own = [p for p in PARTS if p not in ("late_rank_us", "pipeline_wait_us", "transfer_us")]
    for part in own:  # one rank with a reason of its own explains the waiting of all others
        share = float((grown[part] > 0.5 * excess_us).mean())
        if share > 0:
            return part, share
    moved = grown[["transfer_us", "late_rank_us", "pipeline_wait_us"]].median()
    part = str(moved.idxmax())
    return part, float((grown[part] > 0.5 * excess_us).mean())


def _causes(stalls: pd.DataFrame, host_ops: pd.DataFrame | None) -> pd.Series:
    """The cause of each row: recompile or stall_steps."""
    idle = stalls["part"].isin(["unknown_us", "data_wait_us"]) & (stalls["ranks_share"] > 0.5)
    data_us = 0.0
    if host_ops is not None:
        rows = HOST_OPS.check(host_ops)
        rows = rows[rows["name"].str.contains("GetNext", na=False)]
        data_us = float(rows.groupby("rank_id")["total_us"].sum().max()) if len(rows) else 0.0
    data = data_us >= 0.5 * float(stalls.loc[idle, "excess_us"].sum())
    compiled = (stalls["part"] == "compile_us") | (idle & (not data))
    return compiled.map({True: "recompile", False: "stall_steps"})
