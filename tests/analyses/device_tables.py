"""Device tables made by hand: tasks and collectives with times in microseconds."""

import pandas as pd

BASE_NS = 1_795_955_116_000_000_000


def kernels(rows) -> pd.DataFrame:
    """Rows of (rank, step, start_us, duration_us[, op_type[, shapes]])."""
    full = [(*row, "MatMul", "8,8")[:6] if len(row) == 4 else (*row, "8,8")[:6] for row in rows]
    frame = pd.DataFrame(full, columns=["rank_id", "step", "start_us", "duration_us", "op_type", "input_shapes"])
    return frame.assign(
        window=0,
        name="Default/net/" + frame["op_type"] + "-op0/k",
        is_communication=False,
        start_ns=BASE_NS + (frame["start_us"] * 1000).astype("int64"),
    )


def collectives(rows) -> pd.DataFrame:
    """Rows of (rank, step, name, group, start_us, elapsed_us[, op_type[, size_bytes]])."""
    full = [(*row, "allreduce", 4e6)[:8] if len(row) == 6 else (*row, 4e6)[:8] for row in rows]
    columns = ["rank_id", "step", "name", "group_id", "start_us", "elapsed_us", "op_type", "size_bytes"]
    frame = pd.DataFrame(full, columns=columns)
    return frame.assign(
        window=0,
        is_p2p=frame["op_type"].isin(["send", "receive"]),
        start_ns=BASE_NS + (frame["start_us"] * 1000).astype("int64"),
    )
