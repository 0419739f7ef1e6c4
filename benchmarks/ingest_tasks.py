"""One task of `ingest.py` in its own process: `python ingest_tasks.py TASK PATH`. Prints its time without imports."""

import json
import sys
import time
from pathlib import Path

BUSY = """
WITH device AS (
    SELECT rank_id, start_ns AS s, start_ns + duration_ns AS e, starts_with(name, 'nccl') AS is_communication
    FROM trace_events WHERE category = 'kernel'
), ordered AS (
    SELECT *, max(e) OVER (
        PARTITION BY rank_id, is_communication ORDER BY s, e ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS before
    FROM device
)
SELECT rank_id, is_communication, sum(greatest(0, e - greatest(s, coalesce(before, s)))) / 1000 AS busy_us
FROM ordered GROUP BY ALL ORDER BY ALL
"""
LAYERS = """
SELECT rank_id, track, sum(duration_ns) / 1000 AS busy_us FROM trace_events
WHERE layer = 'Overlap Analysis' GROUP BY ALL ORDER BY ALL
"""
STEPS = """
SELECT rank_id, avg(computing_us) AS computing_us, avg(communication_not_overlapped_us) AS exposed_us,
       avg(free_us) AS free_us
FROM step_time GROUP BY rank_id ORDER BY rank_id
"""


def json_load(path):
    start = time.perf_counter()
    with path.open() as f:
        value = json.load(f)
    return time.perf_counter() - start, len(value)


def orjson_loads(path):
    import orjson

    start = time.perf_counter()
    value = orjson.loads(path.read_bytes())
    return time.perf_counter() - start, len(value)


def columns(path):
    from workbench.readers.kinds import FileContext
    from workbench.readers.trace import stream_trace

    start = time.perf_counter()
    pieces = []
    stream_trace(path, FileContext(), lambda _, rows: pieces.append(rows))
    return time.perf_counter() - start, sum(p.num_rows for p in pieces)


def queryable(path):
    return _query(path, "SELECT count(*) AS n, sum(duration_ns) AS ns FROM trace_events", jobs=1)


def busy(path):
    return _query(path, BUSY)


def layers(path):
    return _query(path, LAYERS)


def steps(path):
    return _query(path, STEPS)


def everything(path):
    """Read all tables of all ranks."""
    from workbench.run import open_run

    start = time.perf_counter()
    run = open_run(path, quiet=True)
    run.read_all()
    return time.perf_counter() - start, {name: run.count(name) for name in run.tables}


def _query(path, sql, jobs=None):
    from workbench.run import open_run

    start = time.perf_counter()
    table = open_run(path, quiet=True, jobs=jobs).sql(sql)
    return time.perf_counter() - start, table.head(16).to_dict("records")


def hta(path):
    from hta.trace_analysis import TraceAnalysis

    start = time.perf_counter()
    table = TraceAnalysis(trace_dir=str(path)).get_temporal_breakdown(visualize=False)
    return time.perf_counter() - start, json.loads(table.to_json(orient="records"))


if __name__ == "__main__":
    seconds, result = globals()[sys.argv[1]](Path(sys.argv[2]))
    print(json.dumps({"seconds": seconds, "result": result}, default=float))
