"""Step times of all ranks -> which rank comes late to the collectives: it waits least, the others wait for it.

Source: in a synchronous job the late rank has the short communication; long waits mark the victims.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from workbench.analyses.statistics import MAD_TO_SIGMA, mad
from workbench.tables import STEP_TIME

RANKS_LEAST = 4
PARTS = ("computing_us", "free_us")  # what a rank does on its own
WAIT = "communication_not_overlapped_us"
AS_LATE = 0.7  # of the latest rank's excess: the others hardly wait for one of such ranks more than for another


@dataclass(frozen=True, kw_only=True)
class LateRank:
    """The rank whose own time is longest, against its peers (medians over steps).

    Attributes:
        rank_id, ranks: which of how many; steps: profiled steps.
        part: the part of `PARTS` that is longer.
        own_us, peers_us: own time of the rank, and median of the peers; excess_us: between them; sigmas: in robust
            deviations of the peers.
        parts: per column of `PARTS` and `WAIT`: of the rank, median of the peers.
        wait_rank: place of its communication among all, 1 for the shortest; missing_us: how much shorter than the
            peers' it is.
        computing_spread_share: (largest - smallest) computing time over their median.
        step_us: typical step.
        late_ranks: all ranks with at least `AS_LATE` of the excess, itself among them.
    """

    rank_id: int
    ranks: int
    steps: int
    part: str
    own_us: float
    peers_us: float
    excess_us: float
    sigmas: float
    parts: dict[str, tuple[float, float]]
    wait_rank: int
    missing_us: float
    computing_spread_share: float
    step_us: float
    late_ranks: tuple[int, ...]


def late_rank(step_time: pd.DataFrame) -> LateRank | None:
    """The rank with the longest own time; None with fewer than `RANKS_LEAST` ranks.

    Args:
        step_time: table `step_time`.
    """
    steps = STEP_TIME.check(step_time).dropna(subset=[*PARTS, WAIT])
    medians = steps.groupby("rank_id")[[*PARTS, WAIT]].median()
    if len(medians) < RANKS_LEAST:
        return None
    own = medians[list(PARTS)].sum(axis=1)
    rank = int(str(own.idxmax()))
    peers = medians.drop(index=rank)
    peers_us = float(own.drop(index=rank).median())
    sigma = MAD_TO_SIGMA * mad(own.drop(index=rank))
    excess = float(own[rank]) - peers_us
    parts = {c: (float(str(medians.loc[rank, c])), float(peers[c].median())) for c in (*PARTS, WAIT)}
    computing = medians["computing_us"]
    return LateRank(
        rank_id=rank,
        ranks=len(medians),
        steps=int(steps["step"].nunique()),
        part=max(PARTS, key=lambda c: parts[c][0] - parts[c][1]),
        own_us=float(own[rank]),
        peers_us=peers_us,
        excess_us=excess,
        sigmas=excess / sigma if sigma > 0 else float("inf"),
        parts=parts,
        wait_rank=int(medians[WAIT].rank(method="min")[rank]),
        missing_us=parts[WAIT][1] - parts[WAIT][0],
        computing_spread_share=float((computing.max() - computing.min()) / computing.median()),
        step_us=float((own + medians[WAIT]).median()),
        late_ranks=tuple(int(str(r)) for r in own.index[own >= peers_us + AS_LATE * excess]),
    )
