"""Device tasks -> the operators that run a second time because their outputs were not kept for the backward pass.

Source of the names: MindSpore's recomputation guide shows an operator of a marked cell and its copy under one scope,
`recompute_Default/...`, and their gradients under `Gradients/recompute_Default/...`; profiles of MindSpore 2.10 (CPU,
graph mode) have the same names. The scope alone is no proof: a marked cell has it in its first run, too, and a marked
cell of one operator has no copies at all.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyses.kernels import compute_kernels

MARKED = r"^(?:[^/]*::)?recompute_"  # the scope of cells marked for recomputation; `::` ends a host event's prefix
PREFIX = r"^[^/]*::"
OPERATOR = r"/[^/]*-op\d+(?:/.*)?$"  # the operator behind its cell, on a device with the kernel that it launches
SCOPED_LIKE = "%Default/%/%"  # a name of graph mode; PyNative mode writes `Default/Add-op0`, torch no scope
BYTES_OF_TYPE = {"8": 1, "16": 2, "32": 4, "64": 8, "FLOAT": 4, "DOUBLE": 8, "BOOL": 1, "HALF": 2, "COMPLEX64": 8}
_VISIT = ["rank_id", "window", "step", "pass"]


def recomputed_operators(kernels: pd.DataFrame) -> pd.DataFrame:
    """The compute tasks that repeat a task of the forward pass.

    A task is such a copy if its scope is marked, it starts after the forward pass, and as many tasks at least of the
    same scope, type and shapes ran before it in the step. The forward pass ends where tasks of `Default` before and of
    `Gradients` after are told apart best: single gradients that need no forward result run early. Fused operators and
    those that lost their scope (`Expand/...`) are not seen: the result is a least.

    Args:
        kernels: table `kernels`. Steps are told by number, else by the n-th run of each name.

    Returns:
        Rows of `kernels` that are copies, in time order per rank and step, with the columns pass (n-th run of the name
        in its step), part (its cell, layers as *), layer (their number, <NA> without) and output_bytes (NaN where
        shapes or types are not recorded). Empty where no scope is marked.

    Raises:
        MissingColumnsError: `kernels` lacks a column.
    """
    rows = compute_kernels(kernels).dropna(subset=["start_ns", "name"])
    marked = rows["name"].str.contains(MARKED)
    rows = rows[rows["rank_id"].isin(rows.loc[marked, "rank_id"])]
    rows = rows.sort_values(["rank_id", "start_ns"], kind="stable", ignore_index=True)
    rows["pass"] = rows.groupby(["rank_id", "window", "step", "name"], dropna=False).cumcount()
    visit = rows.groupby(_VISIT, dropna=False).ngroup()
    order = np.argsort(visit.to_numpy(), kind="stable")
    rows, visit = rows.iloc[order], visit.iloc[order]
    later = rows[_after_forward(rows["name"], visit) & rows["name"].str.contains(MARKED)]
    copies = later[_repeated(rows, visit).reindex(later.index)]
    where = _parts(copies)
    return copies.assign(part=where["part"], layer=where["layer"], output_bytes=_output_bytes(copies))


def recompute_shares(kernels: pd.DataFrame, copies: pd.DataFrame) -> pd.DataFrame:
    """What recomputation takes of each rank's compute time.

    Args:
        kernels: table `kernels`.
        copies: as `recomputed_operators` returns.

    Returns:
        One row per rank_id: steps, compute_us and recomputed_us (per step), recomputed_per_step (tasks), kept_bytes
        (outputs of a step's copies: what keeping all of them would hold at most; NaN where any is not known), share in
        [0, 1] of the compute time. A rank without copies has 0. Empty without any copies.
    """
    columns = ["rank_id", "steps", "compute_us", "recomputed_us", "recomputed_per_step", "kept_bytes", "share"]
    if copies.empty:
        return pd.DataFrame(columns=columns)
    rows = compute_kernels(kernels)
    steps, per_rank = _steps(rows, copies), copies.groupby("rank_id")
    copied = pd.DataFrame(
        {"recomputed_us": per_rank["duration_us"].sum(), "recomputed_per_step": per_rank.size(),
         "kept_bytes": per_rank["output_bytes"].agg(lambda b: b.sum(skipna=False))}
    )  # fmt: skip
    without = ~steps.index.isin(copied.index)
    table = copied.reindex(steps.index).div(steps, axis=0)
    table.loc[without] = 0.0
    table = table.assign(steps=steps, compute_us=rows.groupby("rank_id")["duration_us"].sum() / steps)
    table["share"] = table["recomputed_us"] / table["compute_us"]
    return table.rename_axis("rank_id").reset_index()[columns]


def recomputed_parts(kernels: pd.DataFrame, copies: pd.DataFrame) -> pd.DataFrame:
    """Which operators of which cells are recomputed, and what keeping their outputs would hold.

    Args:
        kernels: table `kernels`.
        copies: as `recomputed_operators` returns.

    Returns:
        One row per (rank_id, part, op_type): layers (numbers seen), per_step (copies), us_per_step, bytes_per_step
        (their outputs; NaN where not known). Most time per byte kept first, then most time. Empty in, empty out.
    """
    columns = ["rank_id", "part", "op_type", "layers", "per_step", "us_per_step", "bytes_per_step"]
    if copies.empty:
        return pd.DataFrame(columns=columns)
    steps = _steps(compute_kernels(kernels), copies)
    parts = copies.groupby(["rank_id", "part", "op_type"], dropna=False).agg(
        layers=("layer", "nunique"), per_step=("duration_us", "size"), us_per_step=("duration_us", "sum"),
        bytes_per_step=("output_bytes", lambda b: b.sum(skipna=False)),
    ).reset_index()  # fmt: skip
    sums = ["per_step", "us_per_step", "bytes_per_step"]
    parts[sums] = parts[sums].div(parts["rank_id"].map(steps), axis=0)
    worth = parts["us_per_step"] / parts["bytes_per_step"]
    ordered = parts.assign(worth=worth).sort_values(
        ["rank_id", "worth", "us_per_step"], ascending=[True, False, False], kind="stable"
    )
    return ordered[columns].reset_index(drop=True)


def worth_keeping(parts: pd.DataFrame, room_bytes: float) -> pd.DataFrame:
    """Whose outputs to keep in `room_bytes`: those that save most time per byte, the last one in part of its layers.

    Args:
        parts: of one rank, as `recomputed_parts` returns, with known bytes.
        room_bytes: memory that may be used for it.

    Returns:
        The rows of which something fits, with kept_share in (0, 1], saved_us and held_bytes per step.
    """
    before = parts["bytes_per_step"].cumsum() - parts["bytes_per_step"]
    share = ((room_bytes - before) / parts["bytes_per_step"]).clip(0.0, 1.0)
    fits = parts.assign(
        kept_share=share, saved_us=share * parts["us_per_step"], held_bytes=share * parts["bytes_per_step"]
    )
    return fits[fits["kept_share"] > 0].reset_index(drop=True)


def _cells(names: pd.Series) -> pd.Series:
    """The cell of each task: its name without the operator."""
    codes, known = pd.factorize(names)
    cells = pd.Series(known, dtype="string").str.replace(PREFIX, "", regex=True).str.replace(OPERATOR, "", regex=True)
    return cells.take(codes).set_axis(names.index)


def _after_forward(names: pd.Series, visit: pd.Series) -> pd.Series:
    """Whether a task comes after the point that has most of `Default` before it and fewest of `Gradients`."""
    top = names.str.replace(PREFIX, "", regex=True)
    is_gradient = top.str.startswith("Gradients/").astype(bool)
    gradients_left = is_gradient[::-1].groupby(visit[::-1]).cumsum()[::-1]
    is_forward = top.str.startswith("Default/").astype(bool) & (gradients_left > 0)  # else the optimizer
    score = (is_forward.astype(int) - is_gradient.astype(int)).groupby(visit).cumsum()
    place = score.groupby(visit).cumcount()
    best = score.groupby(visit).transform("max")
    end = place.where((score == best) & is_forward).groupby(visit).transform("max").fillna(-1)
    return (place > end) & (is_gradient.groupby(visit).transform("any"))


def _repeated(rows: pd.DataFrame, visit: pd.Series) -> pd.Series:
    """Whether at least as many tasks of the same scope, type and shapes ran before a task as run from it on."""
    keys = [visit, _cells(rows["name"]), rows["op_type"].fillna(""), rows["input_shapes"].fillna("")]
    groups = rows.groupby(keys)["duration_us"]
    return 2 * groups.cumcount() >= groups.transform("size")


def _steps(rows: pd.DataFrame, copies: pd.DataFrame) -> pd.Series:
    """Steps per rank: those that are numbered, else the most runs of one copy per window, of all ranks."""
    visits = rows[["rank_id", "window", "step"]].drop_duplicates()
    numbered = visits.groupby("rank_id")["step"].count()
    passes = copies.groupby(["rank_id", "window"], dropna=False)["pass"].max().add(1).groupby("rank_id").sum().max()
    return numbered.where(numbered > 0, passes).astype("float64")


def _parts(copies: pd.DataFrame) -> pd.DataFrame:
    """Cell of each task, from its first numbered one on (else the last two), and the number of its layer."""
    codes, names = pd.factorize(copies["name"])  # a name comes once per step and rank
    scope = _cells(pd.Series(names, dtype="string")).str.replace(MARKED, "", regex=True)
    numbered = scope.str.extract(r"(?:^|/)((\d+)-.*)$")
    tail = scope.str.extract(r"([^/]+(?:/[^/]+)?)$")[0]
    part = numbered[0].fillna(tail).fillna("?").str.replace(r"(^|/)\d+-", r"\1*-", regex=True)
    known = pd.DataFrame({"part": part.astype("string"), "layer": numbered[1].astype("Int64")})
    return known.take(codes).set_axis(copies.index)


def _output_bytes(copies: pd.DataFrame) -> pd.Series:
    """Size of each task's outputs, NaN where a shape or type is not recorded."""
    pairs = copies[["output_shapes", "output_dtypes"]].astype("object")
    known = {pair: _tensor_bytes(*pair) for pair in set(pairs.itertuples(index=False, name=None))}
    return pd.Series([known[p] for p in pairs.itertuples(index=False, name=None)], copies.index, dtype="float64")


def _tensor_bytes(shapes: object, types: object) -> float:
    if not isinstance(shapes, str) or not isinstance(types, str):
        return float("nan")
    each = [t.strip().upper().removeprefix("DT_") for t in types.split(";")]
    sizes = [_type_bytes(t) for t in each]
    axes = [[float(a) for a in s.split(",") if a.strip()] for s in shapes.split(";")]
    if len(sizes) == 1:  # one type is that of all outputs
        sizes *= len(axes)
    if len(axes) != len(sizes):
        return float("nan")
    return float(sum(np.prod(a) * s for a, s in zip(axes, sizes, strict=True)))


def _type_bytes(word: str) -> float:
    """Bytes of one element: `FLOAT16`, `BF16`, `INT64` end in their bits, others are known by name."""
    digits = word.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return float(BYTES_OF_TYPE.get(word, BYTES_OF_TYPE.get(digits, float("nan"))))
