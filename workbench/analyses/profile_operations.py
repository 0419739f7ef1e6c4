"""Kernels and communication of a profile -> operations and what each of them needs, ready to be replayed.

A profile shows when things ran, not what they waited for. Three facts tell it: a queue runs in order; all ranks of a
program run the same operations, so what one of them had not done when it communicated is not needed by the others
either; an idle device goes on when what it waited for ends.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyses.collective_waits import clock_offsets, unclear_clocks
from workbench.analyses.event_graph import IntArray
from workbench.analyses.gradients import gradients_ready
from workbench.analyses.replay import Replay, lane_order, prepare
from workbench.errors import UnknownContentError
from workbench.tables import COLLECTIVES, KERNELS, STEP_TIME

TOLERANCE_US = 1.0  # communication.json rounds starts to a quarter of a microsecond
RELEASE_US = 100.0  # a kernel that waited for communication starts within this time of its end: notify and launch
PLACE = ["rank_id", "step"]
COMPUTE_LANE, COLLECTIVE_LANE, P2P_LANE = "compute", "collective", "p2p"


def profile_operations(
    kernels: pd.DataFrame, collectives: pd.DataFrame | None = None, step_time: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Operations of all ranks and steps of the earliest profile window.

    Args:
        kernels: table `kernels`. Rows without step or start are left out.
        collectives: table `collectives`; None: every rank on its own.
        step_time: table `step_time`; its preparing_us, where not 0, tells when a step began.

    Returns:
        Table `operations`, sorted by rank, step and start, start_ns on the ranks' common clock, and: end_us (since the
        first begin), origin_ns, head_us (begin of the step to first operation of the rank, NaN where unknown), program
        (ranks and steps with the same kernels have the same), ordinal (number of the operation in its lane, rank and
        step), site (name without numbers: the same place in every layer), waits (see
        `workbench.analyses.replay.prepare`).

    Raises:
        UnknownContentError: no kernel has a step and a start, or the ranks' clocks cannot be compared.
    """
    tasks = KERNELS.check(kernels)
    if collectives is not None and len(collectives):
        tasks, collectives = _on_one_clock(tasks, COLLECTIVES.check(collectives))
    compute = _compute(tasks)
    if compute.empty:
        raise UnknownContentError(
            "No kernel has a step and a start time: nothing can be replayed.",
            fix="profile with a schedule and call step() on each step",
        )
    parts = [compute]
    if collectives is not None and len(collectives):
        parts.append(_communication(collectives, tasks))
    table = pd.concat(parts, ignore_index=True)
    table = table[table["window"].fillna(0) == table["window"].fillna(0).min()]
    table = table.sort_values([*PLACE, "start_ns", "duration_us"], ignore_index=True)
    table["ordinal"] = table.groupby([*PLACE, "lane"]).cumcount()
    codes, names = pd.factorize(table["name"])
    table["site"] = pd.Series(names.astype("string")).str.replace(r"\d+", "#", regex=True).reindex(codes).to_numpy()
    table["program"] = _programs(table)
    table["head_us"] = _heads(table, step_time)
    first = table.drop_duplicates(PLACE)
    begin = first["start_ns"] - (first["head_us"].fillna(0.0) * 1e3).astype("int64")
    table["origin_ns"] = int(begin.min())
    table["end_us"] = (table["start_ns"] - table["origin_ns"]) / 1e3 + table["duration_us"]
    return table


def _on_one_clock(kernels: pd.DataFrame, collectives: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both tables without what each rank's clock is ahead of the others'."""
    unclear = unclear_clocks(collectives)
    if len(unclear):
        worst = unclear.loc[unclear["spread_us"].idxmax()]
        raise UnknownContentError(
            f"The clock of rank {worst['rank_id']:.0f} moves by {worst['spread_us']:,.0f} us against the others': what "
            "waited for what cannot be told.",
            fix="keep the hosts' clocks in step (chrony, PTP) while profiling, or profile the ranks of one host",
        )
    ahead_ns = (clock_offsets(collectives).set_index("rank_id")["offset_us"] * 1e3).round()

    def aligned(table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(start_ns=table["start_ns"] - table["rank_id"].map(ahead_ns).fillna(0.0).astype("int64"))

    return aligned(kernels), aligned(collectives)


def profile_replay(operations: pd.DataFrame, *, overlapped: bool = False) -> Replay:
    """Make a replay of what `profile_operations` returns; steps follow each other.

    Its `operations` have all columns of the argument.

    Args:
        operations: as `profile_operations` returns.
        overlapped: gradient collectives start as soon as their gradients are there, even where they did not.
    """
    needs = [lane_order(operations), _kernel_before(operations, overlapped), _communication_before(operations)]
    within = pd.concat(needs, ignore_index=True)
    needs.append(_step_before(operations, within))
    replay = prepare(operations, pd.concat(needs, ignore_index=True).drop_duplicates(), chained=True)
    extra = operations.drop(columns=[c for c in replay.operations if c in operations])
    for column in extra:
        replay.operations[column] = extra[column].to_numpy()
    return replay


def kernels_needed(operations: pd.DataFrame) -> pd.DataFrame:
    """How many kernels of its rank and step each communication operation needs, at most.

    Returns:
        One row per communication operation, indexed like `operations`: kernels (the fewest that were finished at its
        start, over all ranks and steps of the program), is_tight (on such a rank and step its queue was idle before, so
        it did wait for the last of them; where False it may need fewer).
    """
    compute = operations[operations["role"] == "compute"]
    others = operations[operations["role"] != "compute"]
    start = others["end_us"] - others["duration_us"]
    done = _ended_before(compute, others[PLACE], start + TOLERANCE_US)
    queue = others["end_us"].groupby([others["rank_id"], others["step"], others["lane"]]).shift().fillna(-np.inf)
    frame = pd.DataFrame({"kernels": done, "was_idle": start > queue + TOLERANCE_US}, index=others.index)
    key = [others["program"], others["lane"], others["ordinal"]]
    fewest = frame.groupby(key)["kernels"].transform("min")
    is_tight = (frame["was_idle"] & (frame["kernels"] == fewest)).groupby(key).transform("any")
    return pd.DataFrame({"kernels": fewest, "is_tight": is_tight})


def _compute(kernels: pd.DataFrame) -> pd.DataFrame:
    columns = ["rank_id", "window", "step", "name", "op_type", "start_ns", "duration_us"]
    is_known = kernels["step"].notna() & kernels["start_ns"].notna()
    rows = kernels[columns][~kernels["is_communication"].fillna(False) & is_known]
    kept = rows[rows["duration_us"].notna()]
    return kept.assign(role="compute", lane=COMPUTE_LANE, waits=True, group_id=pd.array([pd.NA] * len(kept), "string"))


def _communication(collectives: pd.DataFrame, kernels: pd.DataFrame) -> pd.DataFrame:
    known = collectives["step"].notna() & collectives["start_ns"].notna() & collectives["elapsed_us"].notna()
    rows = collectives[known].rename(columns={"elapsed_us": "duration_us", "idle_us": "latency_us"})
    exact = kernels.loc[kernels["is_communication"].fillna(False), [*PLACE, "name", "start_ns", "duration_us"]]
    exact = exact.drop_duplicates([*PLACE, "name"])
    rows = rows.merge(exact, on=[*PLACE, "name"], how="left", suffixes=("", "_exact"))
    for column in ("start_ns", "duration_us"):
        rows[column] = rows[f"{column}_exact"].fillna(rows[column])
    p2p = rows["is_p2p"].fillna(False)
    role = rows["op_type"].where(p2p & rows["op_type"].isin(["send", "receive"]), "collective")
    rows = rows.assign(role=role, lane=pd.Series(COLLECTIVE_LANE, rows.index).where(~p2p, P2P_LANE))
    rows["group_id"] = _partners(rows)
    rows["waits"] = ~((rows["role"] == "send") & _sends_are_buffered(rows))
    columns = [
        "rank_id", "window", "step", "name", "op_type", "role", "lane", "start_ns", "duration_us", "group_id",
        "size_bytes", "latency_us", "waits",
    ]  # fmt: skip
    return rows[columns]


def _partners(rows: pd.DataFrame) -> pd.Series:
    """Who starts together: the same name in the same group; a send and the receive with the same number in a pair."""
    ordered = rows.sort_values([*PLACE, "start_ns"])
    number = ordered.groupby([*PLACE, "group_id", "role"]).cumcount().reindex(rows.index)
    ranks = rows.groupby("group_id")["rank_id"]
    other = ranks.transform("min") + ranks.transform("max") - rows["rank_id"]
    sender = rows["rank_id"].where(rows["role"] == "send", other)
    pair = rows["group_id"] + " from " + sender.astype("string") + " " + number.astype("string")
    is_pair = ranks.transform("nunique") == 2
    label = (rows["group_id"] + " " + rows["name"]).where(rows["role"] == "collective")
    return label.fillna(pair.where(is_pair & rows["role"].isin(["send", "receive"])))


def _sends_are_buffered(rows: pd.DataFrame) -> bool:
    """Whether a send ends although its receive has not started."""
    sends = rows.loc[rows["role"] == "send", ["step", "group_id", "start_ns", "duration_us"]]
    receives = rows.loc[rows["role"] == "receive", ["step", "group_id", "start_ns"]]
    both = sends.merge(receives, on=["step", "group_id"], suffixes=("", "_receive"))
    early = both["start_ns"] + (both["duration_us"] + TOLERANCE_US) * 1e3 < both["start_ns_receive"]
    return bool(early.any())


def _programs(table: pd.DataFrame) -> pd.Series:
    """Number of the program of each rank and step: the types of its kernels and communication, in order per lane."""
    lanes, types = pd.factorize(table["lane"])[0], pd.factorize(table["op_type"])[0]
    words = np.stack([lanes, types, table["ordinal"].to_numpy()], axis=1).astype(np.int64)
    mixed = pd.util.hash_array(words[:, 0] + (words[:, 1] << 8) + (words[:, 2] << 32))
    places = table.groupby(PLACE, sort=False).ngroup().to_numpy()
    sums = np.zeros(places.max(initial=-1) + 1, dtype=np.uint64)
    np.add.at(sums, places, mixed)  # wraps around: the same words in the same order have the same sum
    return pd.Series(pd.factorize(sums)[0][places], index=table.index, name="program")


def _heads(table: pd.DataFrame, step_time: pd.DataFrame | None) -> pd.Series:
    if step_time is None or step_time.empty:
        return pd.Series(np.nan, index=table.index)
    known = STEP_TIME.check(step_time)[[*PLACE, "preparing_us"]].dropna().drop_duplicates(PLACE)
    known["preparing_us"] = known["preparing_us"].where(known["preparing_us"] > 0)  # MindSpore 2.5 to 2.10 may write 0
    return table[PLACE].merge(known, on=PLACE, how="left")["preparing_us"].set_axis(table.index)


def _kernel_before(operations: pd.DataFrame, overlapped: bool) -> pd.DataFrame:
    """Communication needs the last of the kernels that it needs."""
    if (operations["role"] == "compute").all():
        return pd.DataFrame({"operation": [], "needs": []}, dtype="int64")
    needed = kernels_needed(operations)
    ready = gradients_ready(operations)["ready_kernels"].reindex(needed.index)
    count = needed["kernels"].where(needed["is_tight"] & (not overlapped), np.fmin(needed["kernels"], ready))
    others = operations.loc[needed.index, PLACE].assign(ordinal=count.astype("int64") - 1, operation=needed.index)
    return _with_kernel(operations, others[others["ordinal"] >= 0])


def _with_kernel(operations: pd.DataFrame, wanted: pd.DataFrame) -> pd.DataFrame:
    compute = operations.loc[operations["role"] == "compute", [*PLACE, "ordinal"]]
    both = wanted.merge(compute.assign(needs=compute.index), on=[*PLACE, "ordinal"])
    return both[["operation", "needs"]]


def _communication_before(operations: pd.DataFrame) -> pd.DataFrame:
    """A kernel that started after a gap needs the communication that ended last in it, if that was just before."""
    waited = operations[operations["role"].isin(["collective", "receive"])].sort_values([*PLACE, "end_us"])
    compute = operations[operations["role"] == "compute"]
    start = compute["end_us"] - compute["duration_us"]
    idle = start - compute.groupby(PLACE)["end_us"].shift().fillna(-np.inf)
    gaps = compute[idle > TOLERANCE_US]
    if waited.empty or gaps.empty:
        return pd.DataFrame({"operation": [], "needs": []}, dtype="int64")
    start, idle = start[gaps.index], idle[gaps.index]
    ended = _ended_before(waited, gaps[PLACE], start + TOLERANCE_US)
    first = waited.reset_index(drop=True).reset_index().groupby(PLACE)["index"].min()
    last = gaps[PLACE].join(first.rename("first"), on=PLACE)["first"].fillna(0).to_numpy(dtype=np.int64) + ended - 1
    after = start.to_numpy() - waited["end_us"].to_numpy()[last]
    found = (ended > 0) & (after <= np.minimum(idle.to_numpy() + TOLERANCE_US, RELEASE_US))
    return pd.DataFrame({"operation": gaps.index[found], "needs": waited.index[last[found]]}, dtype="int64")


def _ended_before(operations: pd.DataFrame, places: pd.DataFrame, time_us: pd.Series) -> IntArray:
    """How many operations of the same rank and step had ended before each time."""
    place = pd.concat([operations[PLACE], places], ignore_index=True).groupby(PLACE).ngroup().to_numpy(dtype=np.int64)
    time = np.rint(np.concatenate([operations["end_us"], time_us]) * 1e3).astype(np.int64)
    time -= time.min(initial=0)
    key = place * (time.max(initial=0) + 1) + time  # one axis, places one after the other
    ends = np.sort(key[: len(operations)])
    before = np.searchsorted(ends, key[len(operations) :])
    done: IntArray = before - np.searchsorted(ends, place[len(operations) :] * (time.max(initial=0) + 1))
    return done


def _step_before(operations: pd.DataFrame, within: pd.DataFrame) -> pd.DataFrame:
    """What needs nothing in its own step needs the rank's last operation of the step before."""
    free = operations.drop(index=within["operation"].unique())[PLACE]
    last = operations.sort_values("end_us").drop_duplicates(PLACE, keep="last")[PLACE]
    numbers = {step: i for i, step in enumerate(sorted(operations["step"].unique()))}
    left = free.assign(operation=free.index, number=free["step"].map(numbers) - 1)
    right = last.assign(needs=last.index, number=last["step"].map(numbers))
    return left.merge(right, on=["rank_id", "number"])[["operation", "needs"]]
