"""Tables of pipelines for tests: services as measured, operators as profiled."""

import pandas as pd

from workbench.analyses.pipeline_rates import SERVICE_COLUMNS, services_table

OPERATOR = {
    "inputs": (), "workers": 1, "processes": False, "can_have_workers": True, "runs_python": True, "input_rows": 1.0,
    "cpu_us": 0.0, "lock_us": 0.0, "many_workers": 1, "prefix_row_us": 0.0, "row_bytes": 1000.0, "epoch_rows": None,
    "buffer_rows": 0, "error_share": 0.0, "stolen_share": 0.0, "is_cheap": False,
}  # fmt: skip


def service(name, service_us, **values):
    base = dict.fromkeys(SERVICE_COLUMNS) | OPERATOR
    return (
        base | {"name": name, "op_type": name.split("#")[0], "service_us": service_us, "many_us": service_us} | values
    )


def chain(*rows):
    """Services of operators behind each other, sources first."""
    linked = [row | {"inputs": (rows[i - 1]["name"],) if i else ()} for i, row in enumerate(rows)]
    return services_table(linked)


def profiled(*rows, rank_id=0):
    """Table `data_ops` from (op_id, op_type, parent_id, fill_share or None, cpu_share, workers)."""
    return pd.DataFrame(
        [
            {
                "rank_id": rank_id, "op_id": op, "op_type": kind, "parent_id": parent, "num_workers": workers,
                "queue_capacity": None if fill is None else 16.0, "queue_mean": None if fill is None else 16 * fill,
                "queue_fill_share": fill, "cpu_share": cpu, "samples": 40,
            }
            for op, kind, parent, fill, cpu, workers in rows
        ]
    )  # fmt: skip


def batches(waits_us, *, step_us, rank_id=0, queue_sizes=None):
    """Table `data_batches`: each batch is taken after its wait, then a step follows."""
    rows, now = [], 0.0
    for i, wait in enumerate(waits_us):
        now += wait
        size = (0.0 if wait else 8.0) if queue_sizes is None else queue_sizes[i]
        rows.append(
            {"rank_id": rank_id, "batch": i + 1, "pipeline_us": float(wait), "queue_size": size,
             "queue_capacity": 16.0, "time_us": now}
        )  # fmt: skip
        now += step_us
    return pd.DataFrame(rows)
