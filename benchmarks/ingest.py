"""Reading traces and profiles: this project beside orjson, json, HolisticTraceAnalysis and msprof-analyze.

    python benchmarks/ingest.py --work ingest_inputs --hta-python HTA/bin/python --msprof-python MSPROF/bin/python

Everything runs in one go on the same files, each task in a process of its own, tasks taking turns. "inside" is the time
that the task itself takes, without imports; "process" is the whole process. Memory is the peak of the process tree,
shared pages counted once. A goal is printed with what was measured, met or not.

The other tools want environments of their own, because their pins and ours do not fit together:

    python -m venv HTA && HTA/bin/pip install HolisticTraceAnalysis "pandas<2.3"
    python -m venv MSPROF && MSPROF/bin/pip install msprof-analyze

Without --hta-python or --msprof-python their part is left out. --cluster-tool is `make_cluster.py` of the sample
collection, which simulates clusters; without it the parts on MindSpore profiles of many ranks are left out. The large
trace is made with --large-bytes (2 GB by default, 0 leaves it out).
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from ingest_inputs import kineto_trace, mindspore_trace
from measure import peak_bytes, time_of

WORK = Path(tempfile.gettempdir()) / "workbench-ingest"
TASKS = Path(__file__).with_name("ingest_tasks.py")
MB = 1 << 20


class Bench:
    """Runs tasks, remembers what was measured, prints a Markdown table."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.work = arguments.work
        self.cache = self.work / "cache"
        self.rows = []
        self.msprof = arguments.msprof_python and Path(arguments.msprof_python).with_name("msprof-analyze")

    def times(self, name, path, *, python=sys.executable, fresh=True):
        """Time of one task; `fresh` empties our cache before."""
        command, env = self._command(name, path, python, fresh)
        return time_of(command, env=env)

    def median(self, name, path, **options):
        """The run with the median time of the whole process."""
        runs = [self.times(name, path, **options) for _ in range(self.arguments.repeat)]
        return sorted(runs, key=lambda m: m.wall_s)[len(runs) // 2]

    def peak(self, name, path, *, python=sys.executable):
        """Peak memory of one task in MB."""
        command, env = self._command(name, path, python, True)
        return peak_bytes(command, env=env) / MB

    def _command(self, name, path, python, fresh):
        if fresh:
            shutil.rmtree(self.cache, ignore_errors=True)
        return [python, TASKS, name, path], {"WORKBENCH_CACHE": str(self.cache)}

    def note(self, what, measured, peak_mb=None):
        """Print one measurement."""
        inside = "" if measured.inside_s is None else f"{measured.inside_s:.2f} s inside, "
        memory = "" if peak_mb is None else f", peak {peak_mb:.0f} MB"
        print(f"  {what}: {inside}{measured.wall_s:.2f} s the whole process{memory}", flush=True)

    def goal(self, what, value, limit, unit="×"):
        """Print what was measured beside its goal, and keep it for the table."""
        met = "met" if value <= limit else "NOT MET"
        self.rows.append((what, f"{value:.2f} {unit}", f"≤ {limit:g} {unit}", met))
        print(f"  GOAL {what}: {value:.2f} {unit} (≤ {limit:g}): {met}", flush=True)


def one_trace(bench):
    """json.load, orjson.loads, columns, queryable Parquet: one file, the tasks take turns."""
    path = bench.work / "trace_300mb.json"
    if not path.exists():
        mindspore_trace(path, bench.arguments.trace_bytes)
    print(f"one trace, {path.stat().st_size / MB:.0f} MB")
    names = ("orjson_loads", "columns", "queryable", "again", "json_load")
    turns = [_turn(bench, path) for _ in range(bench.arguments.repeat)]
    for name in names:
        middle = sorted((t[name] for t in turns), key=lambda m: m.inside_s)[len(turns) // 2]
        bench.note(name, middle, bench.peak(name, path) if name != "again" else None)

    def ratio(name, other="orjson_loads"):
        return statistics.median(t[name].inside_s / t[other].inside_s for t in turns)

    bench.goal("trace → columns, of orjson.loads of the same bytes", ratio("columns"), 0.5)
    bench.goal("trace → Parquet on disk and a query, of orjson.loads", ratio("queryable"), 1.0)
    print(f"  json.load: {ratio('json_load'):.2f} × orjson.loads")
    bench.goal("re-opening a trace, of the first opening", ratio("again", "queryable"), 0.1)
    bench.goal("peak memory, 300 MB trace", bench.peak("queryable", path), 300, "MB")


def _turn(bench, path):
    turn = {n: bench.times(n, path) for n in ("orjson_loads", "columns", "json_load", "queryable")}
    return {**turn, "again": bench.times("queryable", path, fresh=False)}


def large_trace(bench):
    """A trace of 2 GB: memory must not grow."""
    path = bench.work / "trace_large.json"
    if not path.exists():
        mindspore_trace(path, bench.arguments.large_bytes)
    print(f"one trace, {path.stat().st_size / MB:.0f} MB")
    bench.note("queryable", bench.times("queryable", path))
    bench.note("queryable, opened again", bench.times("queryable", path, fresh=False))
    bench.goal("peak memory, 2 GB trace", bench.peak("queryable", path), 300, "MB")
    path.unlink()


def eight_kineto(bench, events):
    """Load eight ranks and say how long each computes and communicates: ours and HolisticTraceAnalysis."""
    folder = bench.work / f"kineto8_{events}"
    if not folder.exists():
        folder.mkdir(parents=True)
        for rank in range(8):
            kineto_trace(folder / f"rank-{rank}.pt.trace.json", events, rank=rank, ranks=8)
    size = f"{sum(p.stat().st_size for p in folder.iterdir()) / MB:.0f} MB"
    print(f"eight Kineto traces, {size} together: load, per-rank breakdown")
    ours = bench.median("busy", folder)
    again = bench.times("busy", folder, fresh=False)
    bench.note("ours", ours, bench.peak("busy", folder))
    bench.note("ours, opened again", again)
    bench.goal(f"re-opening 8 ranks ({size}), of the first opening", again.inside_s / ours.inside_s, 0.1)
    if not bench.arguments.hta_python:
        return
    theirs = bench.times("hta", folder, python=bench.arguments.hta_python)
    bench.note("HolisticTraceAnalysis", theirs, bench.peak("hta", folder, python=bench.arguments.hta_python))
    compare_breakdowns(ours.result, theirs.result)
    what = f"8 ranks ({size}) → breakdown, whole process, of HolisticTraceAnalysis"
    bench.goal(what, ours.wall_s / theirs.wall_s, 0.1)


def compare_breakdowns(ours, theirs):
    """Say how far the two computing times are apart: the other tool rounds all times to microseconds."""
    computing = {r["rank_id"]: r["busy_us"] for r in ours if not r["is_communication"]}
    differences = [abs(computing[r["rank"]] / r["compute_time(us)"] - 1) for r in theirs]
    print(f"  computing time differs by at most {max(differences):.1%}")


def eight_ranks(bench, steps):
    """MindSpore profiles of 8 ranks: ours, from step_trace_time and from the timelines, and msprof-analyze."""
    size = ("--ranks", "8", "--steps", str(steps), "--layers", "8")
    eight = made_cluster(bench.arguments.cluster_tool, bench.work / f"cluster8_{steps}", *size)
    what = f"8 ranks ({steps} steps, {folder_bytes(eight) / MB:.0f} MB) → breakdown"
    print(what)
    ours = bench.median("steps", eight)
    bench.note("ours", ours, bench.peak("steps", eight))
    timeline = bench.median("layers", eight)
    bench.note("ours, from the timelines", timeline, bench.peak("layers", eight))
    if bench.msprof:
        command = [bench.msprof, "advisor", "all", "-d", eight, "-o", bench.work / "advisor"]
        theirs = time_of(command)
        bench.note("msprof-analyze advisor all", theirs, peak_bytes(command) / MB)
        what += ", whole process, of msprof-analyze advisor all"
        bench.goal(what, ours.wall_s / theirs.wall_s, 0.15)
        bench.goal(f"{what}, from the timelines", timeline.wall_s / theirs.wall_s, 0.15)


def folder_bytes(folder):
    """Size of all files below a folder."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def many_ranks(bench):
    """MindSpore profiles of 1,024 ranks: ours and msprof-analyze."""
    size = ("--ranks", "1024", "--steps", "4", "--layers", "2", "--no-trace")
    many = made_cluster(bench.arguments.cluster_tool, bench.work / "cluster1024", *size)
    print("1,024 MindSpore ranks: open, per-rank step breakdown")
    ours = bench.median("steps", many)
    again = bench.times("steps", many, fresh=False)
    peak_mb = bench.peak("steps", many)
    bench.note("ours", ours, peak_mb)
    bench.note("ours, opened again", again)
    bench.goal("peak memory, 1,024 ranks", peak_mb, 400, "MB")
    print(
        f"  re-opening, of that first opening, which reads one small table only: {again.inside_s / ours.inside_s:.2f}"
    )
    whole = bench.times("everything", many)
    again = bench.times("everything", many, fresh=False)
    bench.note("ours, every table", whole)
    bench.note("ours, every table, opened again", again)
    bench.goal("re-opening 1,024 ranks, of the first opening (every table)", again.inside_s / whole.inside_s, 0.1)
    if bench.msprof:
        command = [bench.msprof, "cluster", "-m", "all", "-d", many, "-o", bench.work / "cluster_out"]
        theirs = time_of(command)
        bench.note("msprof-analyze cluster -m all", theirs, peak_bytes(command) / MB)
        what = "1,024 ranks → breakdown, whole process, of msprof-analyze cluster -m all"
        bench.goal(what, ours.wall_s / theirs.wall_s, 0.25)


def made_cluster(tool, folder, *options):
    if not folder.exists():
        subprocess.run([sys.executable, tool, folder, *options], check=True, stdout=subprocess.DEVNULL)
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=WORK, help="folder for inputs, some GB")
    parser.add_argument("--hta-python", help="python of an environment with HolisticTraceAnalysis")
    parser.add_argument("--msprof-python", help="python of an environment with msprof-analyze")
    parser.add_argument("--cluster-tool", type=Path, default=Path(__file__).parents[2] / "shared/tools/make_cluster.py")
    parser.add_argument("--trace-bytes", type=int, default=300 * MB)
    parser.add_argument("--large-bytes", type=int, default=2048 * MB, help="0 leaves it out")
    parser.add_argument("--kineto-events", type=int, nargs="*", default=[120_000, 400_000], help="per rank")
    parser.add_argument("--steps", type=int, nargs="*", default=[20, 100], help="of the eight MindSpore ranks")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    bench = Bench(arguments)
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f} at the start")
    one_trace(bench)
    if arguments.large_bytes:
        large_trace(bench)
    for events in arguments.kineto_events:
        eight_kineto(bench, events)
    if arguments.cluster_tool.is_file():
        for steps in arguments.steps:
            eight_ranks(bench, steps)
        many_ranks(bench)
    print(f"load {os.getloadavg()[0]:.1f} at the end\n\n| what | measured | goal | |\n|---|---|---|---|")
    for row in bench.rows:
        print("| " + " | ".join(row) + " |")
    shutil.rmtree(bench.cache, ignore_errors=True)


if __name__ == "__main__":
    main()
