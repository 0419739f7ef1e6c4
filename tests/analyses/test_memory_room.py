import pandas as pd

from tests.memory_rows import timeline
from workbench.analyses.memory_room import memory_room
from workbench.tables import LOG_MESSAGES, SETTINGS, TELEMETRY, TRAINING_STEPS

MIB = 2**20


def settings(**values):
    return SETTINGS.check(pd.DataFrame({"name": list(values), "value": list(values.values())}))


def messages(*rows):
    frame = pd.DataFrame(rows, columns=["rank_id", "fields"]).astype({"rank_id": "Int64"})
    return LOG_MESSAGES.check(frame.assign(file="a.log", line=1, kind="memory_summary", text=""))


def test_highest_peak_against_the_lowest_limit():
    steps = TRAINING_STEPS.check(
        pd.DataFrame({"rank_id": [0, 0], "step": [1, 2], "device_allocated_bytes": [30.0 * MIB, 45.0 * MIB]})
    )
    tables = {
        "memory_timeline": timeline((1, 20 * MIB, 40 * MIB), (2, 25 * MIB, 40 * MIB)),
        "training_steps": steps,
        "settings": settings(max_device_memory="100MB"),
        "log_messages": messages((pd.NA, f'{{"budget_bytes":{90 * MIB},"actual_peak_bytes":{44 * MIB}}}')),
    }
    (row,) = memory_room(tables, [0]).to_dict("records")
    assert (row["peak_bytes"], row["peak_from"]) == (45 * MIB, "training_steps")
    assert (row["limit_bytes"], row["limit_from"]) == (90 * MIB, "log_messages")
    assert row["room_bytes"] == (90 - 45) * MIB


def test_ranks_have_their_own_peaks_and_share_what_is_told_of_none():
    both = pd.concat([timeline((1, 10 * MIB, 20 * MIB)), timeline((1, 10 * MIB, 60 * MIB), rank_id=1)])
    room = memory_room({"memory_timeline": both, "settings": settings(max_size="80MB")}, [0, 1, 2])
    assert room["room_bytes"].tolist()[:2] == [60 * MIB, 20 * MIB]
    assert room.loc[2, "limit_from"] == "settings, max_size"
    assert room.loc[2, ["peak_bytes", "room_bytes"]].isna().all()


def test_a_pool_without_reserved_memory_counts_what_is_in_use_and_never_less_than_no_room():
    curve = timeline((1, 120 * MIB, float("nan")))
    (row,) = memory_room({"memory_timeline": curve, "settings": settings(max_size="80MB")}, [0]).to_dict("records")
    assert (row["peak_bytes"], row["room_bytes"]) == (120 * MIB, 0)


def test_cards_that_were_sampled():
    samples = [(0, "device_memory_used_bytes", 10.0), (0, "device_memory_used_bytes", 30.0),
               (0, "device_memory_total_bytes", 64.0), (pd.NA, "device_memory_used_bytes", 60.0)]  # fmt: skip
    frame = pd.DataFrame(samples, columns=["rank_id", "metric", "value"]).astype({"rank_id": "Int64"})
    room = memory_room({"telemetry": TELEMETRY.check(frame.assign(host="0"))}, [0])
    assert room[["peak_bytes", "limit_bytes", "room_bytes"]].to_numpy().tolist() == [[30.0, 64.0, 34.0]]


def test_nothing_known_is_missing():
    room = memory_room({}, [0])
    assert room[["peak_bytes", "limit_bytes", "room_bytes"]].isna().all(axis=None)
    assert memory_room({}, []).empty
