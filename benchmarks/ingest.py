"""Reading traces and profiles: this project beside orjson, json, HolisticTraceAnalysis and msprof-analyze.

    python benchmarks/ingest.py --work /tmp/ingest --hta-python HTA/bin/python --msprof-python MSPROF/bin/python

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
from pathlib import Path

from ingest_inputs import kineto_trace, mindspore_trace
from measure import run

TASKS = Path(__file__).with_name("ingest_tasks.py")
MB = 1 << 20


class Bench:
    """Runs tasks, remembers what was measured, prints a Markdown table."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.work = arguments.work
        self.cache = self.work / "cache"
        self.rows = []

    def task(self, name, path, *, python=sys.executable, fresh=True, repeat=1):
        """Median measurement of a task; `fresh` empties our cache before each run."""
        runs = []
        for _ in range(repeat):
            if fresh:
                shutil.rmtree(self.cache, ignore_errors=True)
            runs.append(run([python, TASKS, name, path], env={"WORKBENCH_CACHE": str(self.cache)}))
        return sorted(runs, key=lambda m: m.wall_s)[len(runs) // 2]

    def note(self, what, measured):
        """Print one measurement."""
        seconds = measured.wall_s if measured.inside_s is None else measured.inside_s
        print(
            f"  {what}: {seconds:.2f} s, whole process {measured.wall_s:.2f} s, peak {measured.peak_bytes / MB:.0f} MB",
            flush=True,
        )

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
    names = ("orjson_loads", "columns", "queryable", "json_load")
    turns = [{n: bench.task(n, path) for n in names} for _ in range(bench.arguments.repeat)]
    again = bench.task("queryable", path, fresh=False)
    middle = {n: sorted((t[n] for t in turns), key=lambda m: m.inside_s)[len(turns) // 2] for n in names}
    for name in names:
        bench.note(name, middle[name])
    bench.note("queryable, opened again", again)

    def ratio(name):
        return statistics.median(t[name].inside_s / t["orjson_loads"].inside_s for t in turns)

    bench.goal("trace → columns, of orjson.loads of the same bytes", ratio("columns"), 0.5)
    bench.goal("trace → Parquet on disk and a query, of orjson.loads", ratio("queryable"), 1.0)
    print(f"  json.load: {ratio('json_load'):.2f} × orjson.loads")
    bench.goal("peak memory, 300 MB trace", middle["queryable"].peak_bytes / MB, 300, "MB")
    bench.goal("re-opening, of the first opening", again.inside_s / middle["queryable"].inside_s, 0.1)


def large_trace(bench):
    """A trace of 2 GB: memory must not grow."""
    path = bench.work / "trace_large.json"
    if not path.exists():
        mindspore_trace(path, bench.arguments.large_bytes)
    print(f"one trace, {path.stat().st_size / MB:.0f} MB")
    first = bench.task("queryable", path)
    bench.note("queryable", first)
    bench.note("queryable, opened again", bench.task("queryable", path, fresh=False))
    bench.goal("peak memory, 2 GB trace", first.peak_bytes / MB, 300, "MB")
    path.unlink()


def eight_kineto(bench):
    """Load eight ranks and say how long each computes and communicates: ours and HolisticTraceAnalysis."""
    folder = bench.work / "kineto8"
    if not folder.exists():
        folder.mkdir(parents=True)
        for rank in range(8):
            kineto_trace(folder / f"rank-{rank}.pt.trace.json", bench.arguments.kineto_events, rank=rank, ranks=8)
    size = sum(p.stat().st_size for p in folder.iterdir())
    print(f"eight Kineto traces, {size / MB:.0f} MB together: load, per-rank breakdown")
    ours = bench.task("busy", folder, repeat=bench.arguments.repeat)
    bench.note("ours", ours)
    bench.note("ours, opened again", bench.task("busy", folder, fresh=False))
    if not bench.arguments.hta_python:
        return
    theirs = bench.task("hta", folder, python=bench.arguments.hta_python)
    bench.note("HolisticTraceAnalysis", theirs)
    compare_breakdowns(ours.result, theirs.result)
    bench.goal("8 ranks → breakdown, whole process, of HolisticTraceAnalysis", ours.wall_s / theirs.wall_s, 0.1)


def compare_breakdowns(ours, theirs):
    """Say how far the two computing times are apart: the other tool rounds all times to microseconds."""
    computing = {r["rank_id"]: r["busy_us"] for r in ours if not r["is_communication"]}
    differences = [abs(computing[r["rank"]] / r["compute_time(us)"] - 1) for r in theirs]
    print(f"  computing time differs by at most {max(differences):.1%}")


def mindspore_ranks(bench):
    """MindSpore profiles of 8 and of 1,024 ranks: ours and msprof-analyze."""
    tool = bench.arguments.cluster_tool
    msprof = bench.arguments.msprof_python and Path(bench.arguments.msprof_python).with_name("msprof-analyze")
    eight = made_cluster(tool, bench.work / "cluster8", "--ranks", "8", "--steps", "20", "--layers", "8")
    print("eight MindSpore ranks: load, per-rank step breakdown")
    ours = bench.task("steps", eight, repeat=bench.arguments.repeat)
    bench.note("ours", ours)
    if msprof:
        theirs = run([msprof, "advisor", "all", "-d", eight, "-o", bench.work / "advisor"])
        bench.note("msprof-analyze advisor all", theirs)
        bench.goal(
            "8 ranks → breakdown, whole process, of msprof-analyze advisor all", ours.wall_s / theirs.wall_s, 0.15
        )
    many = made_cluster(
        tool, bench.work / "cluster1024", "--ranks", "1024", "--steps", "4", "--layers", "2", "--no-trace"
    )
    print("1,024 MindSpore ranks: open, per-rank step breakdown")
    ours = bench.task("steps", many, repeat=bench.arguments.repeat)
    bench.note("ours", ours)
    again = bench.task("steps", many, fresh=False)
    bench.note("ours, opened again", again)
    bench.goal("peak memory, 1,024 ranks", ours.peak_bytes / MB, 400, "MB")
    bench.goal("re-opening 1,024 ranks, of the first opening", again.inside_s / ours.inside_s, 0.1)
    if msprof:
        theirs = run([msprof, "cluster", "-m", "all", "-d", many, "-o", bench.work / "cluster_out"])
        bench.note("msprof-analyze cluster -m all", theirs)
        bench.goal(
            "1,024 ranks → breakdown, whole process, of msprof-analyze cluster -m all",
            ours.wall_s / theirs.wall_s,
            0.25,
        )


def made_cluster(tool, folder, *options):
    if not folder.exists():
        subprocess.run([sys.executable, tool, folder, *options], check=True, stdout=subprocess.DEVNULL)
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("/tmp/workbench-ingest"), help="folder for inputs, some GB")
    parser.add_argument("--hta-python", help="python of an environment with HolisticTraceAnalysis")
    parser.add_argument("--msprof-python", help="python of an environment with msprof-analyze")
    parser.add_argument("--cluster-tool", type=Path, default=Path(__file__).parents[2] / "shared/tools/make_cluster.py")
    parser.add_argument("--trace-bytes", type=int, default=300 * MB)
    parser.add_argument("--large-bytes", type=int, default=2048 * MB, help="0 leaves it out")
    parser.add_argument("--kineto-events", type=int, default=120_000, help="per rank")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    bench = Bench(arguments)
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f} at the start")
    one_trace(bench)
    if arguments.large_bytes:
        large_trace(bench)
    eight_kineto(bench)
    if arguments.cluster_tool.is_file():
        mindspore_ranks(bench)
    print(f"load {os.getloadavg()[0]:.1f} at the end\n\n| what | measured | goal | |\n|---|---|---|---|")
    for row in bench.rows:
        print("| " + " | ".join(row) + " |")
    shutil.rmtree(bench.cache, ignore_errors=True)


if __name__ == "__main__":
    main()
