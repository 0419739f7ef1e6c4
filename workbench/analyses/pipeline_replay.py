"""Operations of a pipeline- and data-parallel job (forward, backward, send, receive, ...) -> their dependencies.

The vocabulary is that of StragglerAnalysis traces; one model chunk per stage (no interleaving).
"""

from __future__ import annotations

import pandas as pd

from workbench.analyses.replay import Replay, lane_order, prepare
from workbench.errors import UnknownContentError

PLACE = ["rank_id", "step"]
DIRECTIONS = ("forward", "backward")


def pipeline_replay(operations: pd.DataFrame) -> Replay:
    """Make a replay of a trace whose operations have the types forward-compute, backward-recv, ...

    Each step stands alone: its first start is its begin. Dependencies within a rank: the order of each queue; a pass
    needs what it received; a send needs its pass; a receive is posted once the pass before the one that it serves has
    ended; the first backward receive is posted before the last warm-up pass; the first forward pass needs the gathered
    parameters.

    Args:
        operations: table `operations`, any row order.

    Raises:
        UnknownContentError: no operations, contradicting ones, or several model chunks per stage (interleaved).
    """
    table = operations.sort_values([*PLACE, "start_ns", "op_type", "sequence"], ignore_index=True)
    _refuse_chunks(table)
    needs = [lane_order(table), _first_backward(table), _parameters(table)]
    for way in DIRECTIONS:
        compute, send, receive = (f"{way}-{what}" for what in ("compute", "send", "recv"))
        needs += [_same_number(table, send, compute), _same_number(table, compute, receive)]
        needs.append(_same_number(table, receive, compute, offset=-1))
    return prepare(table, pd.concat(needs, ignore_index=True))


def _refuse_chunks(table: pd.DataFrame) -> None:
    """Several passes of one micro-batch on a rank and step: it holds several chunks of the model."""
    passes = table[table["op_type"].isin([f"{way}-compute" for way in DIRECTIONS]) & table["micro_batch"].notna()]
    repeated = passes.duplicated([*PLACE, "op_type", "micro_batch"])
    if repeated.any():
        rank, step, op_type, number = passes.loc[repeated, [*PLACE, "op_type", "micro_batch"]].iloc[0]
        raise UnknownContentError(
            f"Rank {rank} has several {op_type} of micro-batch {number} in step {step}: an interleaved schedule.",
            fix="give a trace with one model chunk per stage (mc 0 only)",
        )


def _positions(table: pd.DataFrame, op_type: str) -> pd.DataFrame:
    rows = table[table["op_type"] == op_type]
    return rows[[*PLACE, "sequence"]].assign(position=rows.index)


def _same_number(table: pd.DataFrame, op_type: str, needed: str, offset: int = 0) -> pd.DataFrame:
    """Operation k of a type needs operation k + offset of another type on the same rank."""
    later, earlier = _positions(table, op_type), _positions(table, needed)
    earlier = earlier.assign(sequence=earlier["sequence"] - offset)
    both = later.merge(earlier, on=[*PLACE, "sequence"], suffixes=("", "_needed"))
    return pd.DataFrame({"operation": both["position"], "needs": both["position_needed"]})


def _first_backward(table: pd.DataFrame) -> pd.DataFrame:
    """The first backward send and receive need the last pass but one before the first backward pass."""
    passes = table[table["op_type"].isin(["forward-compute", "backward-compute"])]
    passes = passes.assign(position=passes.index, needs=passes.groupby(PLACE).cumcount())
    backward = passes[passes["op_type"] == "backward-compute"].groupby(PLACE)["needs"].min() - 2
    wanted = passes.merge(backward.rename("wanted").reset_index(), on=PLACE)
    wanted = wanted.loc[wanted["needs"] == wanted["wanted"], [*PLACE, "position"]]
    first = table[table["op_type"].isin(["backward-recv", "backward-send"]) & (table["sequence"] == 0)]
    both = first[PLACE].assign(operation=first.index).merge(wanted, on=PLACE)
    return both.rename(columns={"position": "needs"})[["operation", "needs"]]


def _parameters(table: pd.DataFrame) -> pd.DataFrame:
    """The first forward pass needs the last gathering of parameters."""
    gather = _positions(table, "params-all-gather").drop_duplicates(PLACE, keep="last")
    first = _positions(table, "forward-compute").drop_duplicates(PLACE)
    both = first.merge(gather, on=PLACE, suffixes=("", "_needed"))
    return pd.DataFrame({"operation": both["position"], "needs": both["position_needed"]})
