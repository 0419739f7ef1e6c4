"""Reading files once: incremental, resumable, in parallel, on a Dask cluster."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import joblib
import pandas as pd
import pytest

import workbench as wb
from workbench import batches
from workbench.batches import plan_batches
from workbench.errors import CacheWriteError, MissingTableError, UnknownContentError, WorkbenchError
from workbench.readers.discovery import discover
from workbench.readers.kinds import FileKind

HEADER = "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free\n"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def cluster(tmp_path) -> Path:
    """Ten ranks of two steps each; rank r computes for 100 * (r + 1) us."""
    root = tmp_path / "profiles"
    for rank in range(10):
        folder = root / f"host_{rank}_20260101000000000_ascend_ms"
        (folder / "ASCEND_PROFILER_OUTPUT").mkdir(parents=True)
        (folder / f"profiler_info_{rank}.json").write_text(json.dumps({"rank_id": str(rank)}))
        rows = "".join(f"{step},{100 * (rank + 1)}.5,1,1,2,3\n" for step in (1, 2))
        (folder / "ASCEND_PROFILER_OUTPUT/step_trace_time.csv").write_text(HEADER + rows)
    return root


def read_files(monkeypatch) -> list[str]:
    """Names of the files that are read from now on."""
    seen: list[str] = []
    real = batches.read_batch

    def spy(batch, root, directory):
        seen.extend(source.path.name for source in batch.sources)
        return real(batch, root, directory)

    monkeypatch.setattr("workbench.ingest.read_batch", spy)
    return seen


def test_an_unchanged_file_is_not_read_again(cluster, monkeypatch):
    first = wb.open_run(cluster, quiet=True).table("step_time")
    seen = read_files(monkeypatch)
    again = wb.open_run(cluster, quiet=True).table("step_time")
    pd.testing.assert_frame_equal(again, first)
    assert seen == []
    assert first.computing_us.tolist() == [100.5 * 1 + 100 * r for r in range(10) for _ in (1, 2)]


def test_a_changed_file_is_read_again(cluster, monkeypatch):
    wb.open_run(cluster, quiet=True)
    path = next(cluster.rglob("step_trace_time.csv"))
    path.write_text(HEADER + "7,9,9,9,9,9\n")
    seen = read_files(monkeypatch)
    table = wb.open_run(cluster, quiet=True).table("step_time")
    assert len(table) == 10 * 2 - 2 + 1
    assert set(seen) == {"step_trace_time.csv"}  # the settings are not read again


def test_a_removed_file_leaves_no_rows(cluster):
    wb.open_run(cluster, quiet=True)
    for path in cluster.glob("host_3_*/ASCEND_PROFILER_OUTPUT/step_trace_time.csv"):
        path.unlink()
    assert 3 not in set(wb.open_run(cluster, quiet=True).table("step_time").rank_id)


def test_a_removed_cache_is_built_again_under_an_open_run(cluster, tmp_path):
    run = wb.open_run(cluster, quiet=True)
    for part in (tmp_path / "cache").rglob("*.parquet"):
        part.unlink()
    assert len(run.table("step_time")) == 20


def test_a_damaged_cache_is_built_again_or_says_how(cluster, tmp_path):
    wb.open_run(cluster, quiet=True)
    for manifest in (tmp_path / "cache").rglob("batches/*.json"):
        manifest.write_text("{")
    run = wb.open_run(cluster, quiet=True)
    assert len(run.table("step_time")) == 20
    for part in (tmp_path / "cache").rglob("step_time-*.parquet"):
        part.write_bytes(part.read_bytes()[:-20])
    with pytest.raises(WorkbenchError, match=r"Fix: remove .* and open the run again"):
        run.table("step_time")


def test_only_what_older_readers_wrote_is_removed(tmp_path, monkeypatch):
    """Watchers and rehearsals keep their own files in .workbench, too."""
    (tmp_path / "run.json").write_text('{"run_id": "a"}')
    kept, outdated = tmp_path / ".workbench/held", tmp_path / ".workbench/tables/0123456789ab"
    for folder in (kept, outdated):
        folder.mkdir(parents=True)
        os.utime(folder, (0, 0))
    wb.open_run(tmp_path, quiet=True)
    assert kept.is_dir()
    assert not outdated.exists()


def test_small_files_share_parts(cluster, monkeypatch, tmp_path):
    monkeypatch.setattr(batches, "BATCH_FILES", 4)
    sources = discover(cluster).sources
    planned = plan_batches(sources, cluster)
    assert sorted((b.kind, len(b.sources)) for b in planned) == [
        ("profiler_info", 2), ("profiler_info", 4), ("profiler_info", 4),
        ("step_trace_time", 2), ("step_trace_time", 4), ("step_trace_time", 4),
    ]  # fmt: skip
    assert len({b.key for b in planned}) == 6
    wb.open_run(cluster, quiet=True)
    assert len(list((tmp_path / "cache").rglob("step_time-*.parquet"))) == 3


def test_large_files_wait_until_they_are_needed(cluster, monkeypatch):
    trace = cluster / "host_0_20260101000000000_ascend_ms/ASCEND_PROFILER_OUTPUT/trace_view.json"
    trace.write_text('[{"ph": "X", "name": "a", "ts": "1.5", "dur": 2}]')
    monkeypatch.setattr("workbench.run.EAGER_FILE_BYTES", 4)
    monkeypatch.setattr("workbench.run.EAGER_TOTAL_BYTES", 5)
    seen = read_files(monkeypatch)
    run = wb.open_run(cluster, quiet=True)
    assert "trace_events" in run.tables
    assert seen == []
    assert run.table("trace_events").start_ns.tolist() == [1500]
    assert seen == ["trace_view.json"]
    assert run.ranks == list(range(10))


def test_a_large_file_without_rows_is_no_table_in_the_end(cluster, monkeypatch):
    trace = cluster / "host_0_20260101000000000_ascend_ms/ASCEND_PROFILER_OUTPUT/trace_view.json"
    trace.write_text("[]")
    monkeypatch.setattr("workbench.run.EAGER_TOTAL_BYTES", 5)
    run = wb.open_run(cluster, quiet=True)
    with pytest.raises(MissingTableError, match="holds no complete event"):
        run.table("trace_events")
    assert "trace_events" not in run.tables
    assert "trace_events" in {m["table"] for m in run.coverage()["missing"]}


@pytest.mark.parametrize("jobs", [1, 2])
def test_any_number_of_processes_gives_the_same(cluster, monkeypatch, jobs):
    monkeypatch.setattr(batches, "BATCH_FILES", 3)
    expected = wb.open_run(cluster, quiet=True, jobs=1).table("step_time")
    monkeypatch.setenv("WORKBENCH_CACHE", str(cluster.parent / f"cache{jobs}"))
    run = wb.open_run(cluster, quiet=True, jobs=jobs)
    pd.testing.assert_frame_equal(run.table("step_time"), expected)


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same(cluster, monkeypatch):
    """Two real worker processes of dask.distributed; the call does not change."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(batches, "BATCH_FILES", 3)
    expected = wb.open_run(cluster, quiet=True, jobs=1).table("step_time")
    monkeypatch.setenv("WORKBENCH_CACHE", str(cluster.parent / "cache_dask"))
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as workers,
        distributed.Client(workers) as client,
        joblib.parallel_config("dask"),
    ):
        run = wb.open_run(cluster, quiet=True)
        found = run.table("step_time")
        done = client.run(lambda dask_worker: dask_worker.state.executed_count)
        assert len(done) == 2
        assert sum(done.values()) >= 4  # the batches ran over there
    pd.testing.assert_frame_equal(found, expected)


CHILD = """
import sys, time
from workbench import batches
real = batches._read_source
def slow(source, context, parts):
    time.sleep(0.05)
    return real(source, context, parts)
batches._read_source = slow
batches.BATCH_FILES = 1
import workbench as wb
print("started", flush=True)
wb.open_run(sys.argv[1], quiet=True, jobs=1)
"""


@pytest.mark.parametrize("after_s", [0.1, 0.3, 0.6])
def test_a_kill_costs_only_what_was_being_read(cluster, monkeypatch, after_s):
    monkeypatch.setattr(batches, "BATCH_FILES", 1)
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(cluster)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    time.sleep(after_s)
    child.send_signal(signal.SIGKILL)
    child.wait()
    finished = len(list((cluster.parent / "cache").rglob("batches/*.json")))
    seen = read_files(monkeypatch)
    table = wb.open_run(cluster, quiet=True).table("step_time")
    assert table.computing_us.tolist() == [100.5 + 100 * r for r in range(10) for _ in (1, 2)]
    assert len(seen) == 20 - finished


def test_two_processes_at_once_agree(cluster):
    code = (
        "import sys, workbench as wb\n"
        "print(wb.open_run(sys.argv[1], quiet=True, jobs=1).table('step_time').computing_us.sum())"
    )
    children = [subprocess.Popen([sys.executable, "-c", code, str(cluster)], stdout=subprocess.PIPE) for _ in range(2)]
    results = [float(c.communicate(timeout=120)[0]) for c in children]
    assert results == [pytest.approx(sum(2 * (100.5 + 100 * r) for r in range(10)))] * 2


def test_no_space_is_an_error_with_a_fix_and_not_a_note_on_the_file(cluster, monkeypatch):
    def full(self, rows):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("workbench.store.PartWriter.write", full)
    with pytest.raises(CacheWriteError, match=r"No space left on device(.|\n)*Fix: free some space"):
        wb.open_run(cluster, quiet=True)


def test_a_defect_in_one_reader_costs_one_file(cluster, monkeypatch):
    def broken(path, context):
        raise KeyError("x")

    kind = FileKind(name="step_trace_time", meaning="m", tables=("step_time",), sniff=lambda p, h: True, read=broken)
    monkeypatch.setitem(batches.KINDS_BY_NAME, "step_trace_time", kind)
    run = wb.open_run(cluster, quiet=True)
    assert "settings" in run.tables
    assert any("The reader of step_trace_time failed: KeyError: 'x'." in n.problem for n in run.notes)


def test_what_a_reader_leaves_out_is_noted_with_the_file(cluster):
    path = sorted(cluster.rglob("step_trace_time.csv"))[2]
    path.write_bytes(b"")
    run = wb.open_run(cluster, quiet=True)
    assert any(n.file.endswith("step_trace_time.csv") and "host_2" in n.file for n in run.notes)
    assert sorted(set(run.table("step_time").rank_id)) == [0, 1, 3, 4, 5, 6, 7, 8, 9]


def test_several_recorded_runs_are_not_mixed(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").write_text(json.dumps({"run_id": name}))
    with pytest.raises(UnknownContentError, match="holds 2 recorded runs"):
        wb.open_run(tmp_path / "runs", quiet=True)
