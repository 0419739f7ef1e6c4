"""Device tasks -> how much work each rank has, and runs of small elementwise operators that could be one kernel."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyses.kernels import compute_kernels, scopes

FUSED_LONGEST_US = 50.0  # a longer elementwise operator is bound by memory: fusing saves its traffic, not its launch
_ELEMENTWISE = (
    "abs add addn assign biasadd broadcastto cast clip div divnonan equal erf exp expm1 fill floor gelu greater"
    " identity isfinite isnan less log log1p logicaland logicalnot logicalor maximum minimum mul muls neg notequal"
    " oneslike pow realdiv reciprocal relu round rsqrt select sigmoid sign silu sqrt square sub tanh where zeroslike"
)
_SUFFIX = r"(?:grad|ext|v\d+|scalar|tensor)+$"
_PLACE = ["rank_id", "window", "step"]
_KIND = ["op_type", "accelerator_core", "input_shapes"]
SHOWN_OPERATORS = 6


def rank_work(kernels: pd.DataFrame, stages: pd.DataFrame | None = None) -> pd.DataFrame:
    """How much each rank has to compute, at the speed of the fastest quarter of ranks, against its peers.

    A rank with longer sequences or more layers has more work; a slow device has the same work and takes longer. The
    work of a call is the lower quartile over ranks of the mean time of calls of its type, core and shapes. Peers are
    the other ranks of the same pipeline stage.

    Args:
        kernels: table `kernels`.
        stages: as `pipeline_stages` returns, or None: all ranks are peers.

    Returns:
        One row per rank_id that has peers: work_us and peers_work_us (median of the others) per step, extra_us and
        extra_share (of the peers'), calls_per_step, peers_calls_per_step, op_type (whose work differs most) and
        op_extra_us. Most work first. Empty in, empty out.
    """
    columns = ["rank_id", "work_us", "peers_work_us", "extra_us", "extra_share", "calls_per_step",
               "peers_calls_per_step", "op_type", "op_extra_us"]  # fmt: skip
    rows = compute_kernels(kernels).fillna({"input_shapes": "", "accelerator_core": "", "op_type": "unknown"})
    if rows.empty:
        return pd.DataFrame(columns=columns)
    kinds = rows.groupby(["rank_id", *_KIND])["duration_us"].agg(calls="size", mean_us="mean").reset_index()
    at_best = kinds.groupby(_KIND)["mean_us"].transform(lambda m: m.quantile(0.25, interpolation="lower"))
    steps = rows[["rank_id", "window", "step"]].drop_duplicates().groupby("rank_id").size()
    per_step = kinds["rank_id"].map(steps)
    kinds = kinds.assign(work_us=kinds["calls"] * at_best / per_step, calls_per_step=kinds["calls"] / per_step)
    work = kinds.pivot_table(index="rank_id", columns="op_type", values="work_us", aggfunc="sum", fill_value=0.0)
    calls = kinds.groupby("rank_id")["calls_per_step"].sum()
    known = {} if stages is None else stages.set_index("rank_id")["stage"].to_dict()
    stage = pd.Series([known.get(r, 0) for r in work.index], index=work.index)
    found = []
    for rank, own in work.iterrows():
        others = work[(stage == stage[rank]) & (work.index != rank)]
        if others.empty:
            continue
        beyond = own - others.median()
        top, peers_us = str(beyond.abs().idxmax()), float(others.sum(axis=1).median())
        extra_us = float(own.sum()) - peers_us
        found.append((rank, float(own.sum()), peers_us, extra_us, extra_us / peers_us if peers_us > 0 else np.nan,
                      calls[rank], float(calls[others.index].median()), top, float(beyond[top])))  # fmt: skip
    return pd.DataFrame(found, columns=columns).sort_values("extra_us", ascending=False, ignore_index=True)


def fusion_candidates(kernels: pd.DataFrame) -> pd.DataFrame:
    """Runs of adjacent small elementwise operators of one scope: each could be one kernel.

    Adjacent are tasks that follow each other on the device. A run has at least two operators of up to 50 us each; the
    scope is the name up to its last slash, numbers in it as `*`, so that the layers of a network are one row. Operators
    of a CPU run, which are not launched, and tasks without start are left out.

    Args:
        kernels: table `kernels`.

    Returns:
        One row per (scope, operators): operators (their types, joined by " > ", the first six), length (of a run),
        runs_per_step, total_us and gap_us (idle inside the runs) per step of a rank, launches_saved (per step, if each
        run were one kernel). Most time first. Empty in, empty out.
    """
    columns = ["scope", "operators", "length", "runs_per_step", "total_us", "gap_us", "launches_saved"]
    rows = compute_kernels(kernels).dropna(subset=["start_ns"])
    rows = rows[rows["accelerator_core"].ne("CPU").fillna(True)].sort_values([*_PLACE, "start_ns"], ignore_index=True)
    if rows.empty:
        return pd.DataFrame(columns=columns)
    kind = rows["op_type"].fillna("").str.lower().str.replace(_SUFFIX, "", regex=True)
    small = kind.isin(_ELEMENTWISE.split()) & (rows["duration_us"] <= FUSED_LONGEST_US)
    scope = scopes(rows).str.replace(r"\d+", "*", regex=True)
    same = pd.concat([rows[c].eq(rows[c].shift()) | (rows[c].isna() & rows[c].shift().isna()) for c in _PLACE], axis=1)
    exact = scopes(rows)
    joins = same.all(axis=1) & small & small.shift(fill_value=False) & exact.eq(exact.shift()).fillna(False)
    run = (~joins).cumsum()
    start = rows["start_ns"].astype("int64")
    before = (start + (rows["duration_us"] * 1e3).round().astype("int64")).shift(fill_value=0)
    gap = ((start - before) / 1e3).clip(lower=0.0).where(joins, 0.0)
    table = rows.assign(scope=scope, gap_us=gap, kind=rows["op_type"].fillna("?"), run=run)[small]
    runs = table.groupby("run").agg(
        scope=("scope", "first"), length=("kind", "size"), total_us=("duration_us", "sum"), gap_us=("gap_us", "sum"),
        operators=("kind", lambda types: " > ".join(types.iloc[:SHOWN_OPERATORS])),
    )  # fmt: skip
    runs = runs[runs["length"] > 1]
    visits = len(rows[_PLACE].drop_duplicates())
    grouped = runs.groupby(["scope", "operators", "length"], dropna=False)
    found = (
        grouped[["total_us", "gap_us"]].sum().div(visits).assign(runs_per_step=grouped.size() / visits).reset_index()
    )
    found["launches_saved"] = (found["length"] - 1) * found["runs_per_step"]
    order = (found["total_us"] + found["gap_us"]).sort_values(ascending=False, kind="stable").index
    return found.loc[order, columns].reset_index(drop=True)
