"""Profile, predict and tune the lab's real data pipelines, and compare with what is true of them.

    python benchmarks/data_pipelines.py --results results.jsonl [--only slow_map locked_map] [--sizes 1 2] [--seeds 1]
    python benchmarks/data_pipelines.py --results results.jsonl --write docs/data_pipeline.md

Each pipeline is profiled in front of a step, its operators are measured, its throughput is predicted for a small grid
of settings, and each of these is measured. Pipelines whose result is in the file are left out, so that a stopped run
goes on; a second run on the same file waits. `--write` only puts the file's results into the document.
"""

from __future__ import annotations

import argparse
import fcntl
import itertools
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "4")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pandas as pd
from document import write_section

from workbench.analyses.data_pipeline import batch_waits, bottleneck, pipeline_operators
from workbench.analyses.pipeline_rates import Machine, Setting
from workbench.analyses.pipeline_tuning import predict, recommend
from workbench.probes.data_profile import profile_pipeline
from workbench.probes.pipeline_lab import LAB, LabPipeline, lab_pipeline
from workbench.probes.pipeline_run import prefetching, run_pipeline
from workbench.probes.pipeline_services import PipelineServices, cores, measure_services
from workbench.probes.pipeline_tune import measure_settings
from workbench.run import open_run

PROFILE_SECONDS, GRID_SECONDS = 2.0, 0.8
NEAR_SHARE, GOOD_SHARE = 0.15, 0.95
MOST_GRID = 6
ROUNDS = 3


def profiled(lab: LabPipeline) -> dict[str, Any]:
    """What the profile of the pipeline in front of its step says."""
    with tempfile.TemporaryDirectory() as folder:
        with profile_pipeline(folder, sampling_interval_ms=20):
            run_pipeline(lab.dataset, PROFILE_SECONDS, step_us=lab.step_us)
        run = open_run(folder, quiet=True)
        tables = {name: run.table(name) for name in ("data_ops", "data_queue_samples", "data_batches", "telemetry")}
    host = tables["telemetry"]
    idle = float(host.loc[host["metric"] == "host_cpu_idle_share", "value"].mean())
    rows = pipeline_operators(tables["data_ops"], tables["data_queue_samples"], tables["data_batches"])
    found = bottleneck(rows, batch_waits(tables["data_batches"]), host_idle_share=idle).iloc[0]
    name = None if found["keeps_up"] else str(found["name"])
    return {
        "found": name or "keeps up",
        "found_reason": str(found["reason"]),
        "wait_share": float(found["wait_share"]),
        "is_found": name == lab.culprit,
        "is_reason": found["reason"] == lab.reason,
    }


def grid(services: PipelineServices, now: Setting, best: Setting) -> list[Setting]:
    """A small grid around the operator that is slowest: its workers and processes; the recommended setting is in it."""
    table = services.table
    heavy = table.assign(cost=table["service_us"] * table["rows_per_batch"]).sort_values("cost").iloc[-1]
    name, kinds = str(heavy["name"]), [False, True] if pd.notna(heavy["process_us"]) else [False]
    prefetch = [now.prefetch_size, 64] if now.prefetch_size == 1 else [now.prefetch_size]
    made = [now, best]
    if heavy["can_have_workers"]:
        for workers, kind, size in itertools.product((1, cores()), kinds, prefetch):
            processes = {name: kind} if heavy["runs_python"] else {}
            made.append(Setting(workers={name: workers}, processes=processes, prefetch_size=size))
    unique = {str(setting): setting for setting in made[1:]}  # the recommended one stays in its place
    return [now, *unique.values()][:MOST_GRID]


def tuned(lab: LabPipeline) -> dict[str, Any]:
    """Predictions and measurements of the grid, and how good the recommended setting is."""
    step_us = lab.step_us if lab.reason == "bursts" else 0.0
    machine = Machine(cores=cores(), step_us=step_us)
    services = measure_services(lab.dataset)
    best = recommend(services.table, services.intervals_us, machine, prefetch_size=lab.prefetch_size)[0]
    settings = grid(services, Setting(prefetch_size=lab.prefetch_size), best)
    predicted = predict(services.table, services.intervals_us, machine, settings)
    measured = measure_settings(lab.dataset, settings, step_us=step_us, seconds=GRID_SECONDS, rounds=ROUNDS)
    table = pd.concat([predicted, measured], axis=1)
    within = (table["measured_us"] >= table["low_us"]) & (table["measured_us"] <= table["high_us"])
    return {
        "predicted_us": float(table["batch_us"].iloc[1]),
        "measured_us": float(table["measured_us"].iloc[1]),
        "before_us": float(table["measured_us"].iloc[0]),
        "before_predicted_us": float(table["batch_us"].iloc[0]),
        "best_us": float(table["measured_us"].min()),
        "stolen_share": float(table["stolen_share"].iloc[1]),
        "recommended": str(best),
        "grid": [
            {k: row[k] for k in ("setting", "batch_us", "low_us", "high_us", "measured_us", "stolen_share")}
            for row in table.to_dict("records")
        ],
        "within_interval": int(within.sum()),
        "settings": len(settings),
    }


def cases(only: list[str] | None, sizes: list[int], seeds: list[int]) -> Iterator[tuple[str, int, int]]:
    """Names, sizes and seeds to run."""
    for seed, size, name in itertools.product(seeds, sizes, only or LAB):
        yield name, size, seed


def as_markdown(results: pd.DataFrame) -> str:
    """The table and the figures that sum it up."""
    off = results["predicted_us"] / results["measured_us"] - 1
    reached = results["best_us"] / results["measured_us"]
    lines = [
        "| pipeline | holds it back | found | predicted | measured | off | before | of the best |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row, o, r in zip(results.itertuples(), off, reached, strict=True):
        truth = f"{row.culprit} ({row.reason})" if isinstance(row.culprit, str) else "nothing: keeps up"
        found = f"{row.found} ({row.found_reason})" if row.found != "keeps up" else "keeps up"
        mark = "" if row.is_found else " **wrong**"
        lines.append(
            f"| {row.name} | {truth} | {found}{mark} | {row.predicted_us / 1e3:.2f} ms "
            f"| {row.measured_us / 1e3:.2f} ms | {o:+.0%} | {row.before_us / 1e3:.2f} ms | {min(r, 1):.0%} |"
        )
    kept = results[results["culprit"].isna()]
    grids = [g for g in results["grid"]]
    inside = sum(row["low_us"] <= row["measured_us"] <= row["high_us"] for g in grids for row in g)
    near = sum(abs(row["batch_us"] / row["measured_us"] - 1) <= NEAR_SHARE for g in grids for row in g)
    total = sum(len(g) for g in grids)
    whole = len(results)
    lines += [
        "",
        f"{whole} pipelines, {cores()} cores, MindSpore 2.10 on CPU, seeds {sorted(set(results['seed']))}.",
        f"- operator named: {int(results['is_found'].sum())} of {whole}; reason too: "
        f"{int((results['is_found'] & results['is_reason']).sum())} of {whole}.",
        f"- accused although it keeps up: {int((kept['found'] != 'keeps up').sum())} of {len(kept)}.",
        f"- predicted maximum within 15 % of the measured one: {int((off.abs() <= NEAR_SHARE).sum())} of {whole} "
        f"(median {off.abs().median():.0%} off, worst {off.abs().max():.0%}); all settings of the grids: {near} of "
        f"{total}, within the 95 % interval {inside} of {total}.",
        f"- the recommended setting reaches 95 % of the best of the grid: {int((reached >= GOOD_SHARE).sum())} of "
        f"{whole} (worst {reached.min():.0%}).",
    ]
    return "\n".join(lines)


def main() -> None:
    """Run what is missing, or write what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True, help="JSON Lines, one line per pipeline")
    parser.add_argument("--only", nargs="+", help="only these pipelines")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--seconds", type=float, default=270, help="start no further pipeline after this time")
    parser.add_argument("--write", type=Path, help="document whose table to replace")
    arguments = parser.parse_args()
    done = pd.read_json(arguments.results, lines=True) if arguments.results.exists() else pd.DataFrame()
    if arguments.write:
        text = as_markdown(done.sort_values(["seed", "size", "name"]))
        write_section(arguments.write, "lab", text)
        print(text)
        return
    lock = arguments.results.with_suffix(".lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    done = pd.read_json(arguments.results, lines=True) if arguments.results.exists() else pd.DataFrame()
    known = set(zip(done["kind"], done["size"], done["seed"], strict=True)) if len(done) else set()
    begun = time.monotonic()
    for name, size, seed in cases(arguments.only, arguments.sizes, arguments.seeds):
        if (name, size, seed) in known or time.monotonic() - begun > arguments.seconds:
            continue
        lab = lab_pipeline(name, size=size, seed=seed)
        case = {"kind": name, "size": size, "seed": seed, "name": lab.name}
        truth = {"culprit": lab.culprit, "reason": lab.reason}
        with prefetching(lab.prefetch_size):
            row = case | truth | profiled(lab) | tuned(lab)
        with arguments.results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print({k: v for k, v in row.items() if k != "grid"}, flush=True)


if __name__ == "__main__":
    main()
