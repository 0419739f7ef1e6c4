"""Diagnose simulated clusters with known faults and print which cause was named first, per fault.

    python benchmarks/fault_matrix.py --tool make_cluster.py --ranks 8 64 --seeds 1 2 3 --results matrix.jsonl
    python benchmarks/fault_matrix.py --results matrix.jsonl --write docs/fault_matrix.md

Four series: single faults (anew for each seed and number of ranks; the seed chooses place, pipeline stages and the name
of the communication layer), weaker ones, pairs of faults, and healthy clusters. Each line of `--results` is one
cluster; what stands there is not run again, so that a long run can be stopped and taken up.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
from document import write_section
from fault_cases import SERIES, Case, all_cases

from workbench.findings.diagnosis import diagnose
from workbench.findings.finding import Finding

MASKED_SHARE, UNCLEAR = 0.5, 0.1  # as workbench.analyses.what_if; within 0.1 of it either answer is right
FREE_SHARE = 0.01  # a fault that costs less of the step, alone and beside others, need not be found


def names(finding: Finding, culprit: dict[str, Any], kind: str, steps: object) -> bool:
    """Whether a finding names the fault at its place."""
    place = all(getattr(finding.culprit, name) == value for name, value in culprit.items())
    return finding.cause == kind and place and (steps == "all" or list(finding.steps.list or ()) == steps)


def judged(case: Case, causes: list[Finding], truth: dict[str, Any]) -> list[dict[str, Any]]:
    """What was found of each fault of a case (of the missing one, for a healthy cluster)."""
    rows, step_us = [], truth["mean_step_ms"] * 1e3
    for (kind, culprit), fault in zip(case.faults, truth["faults"], strict=True):
        saved_us, alone_us = fault["saved_ms_per_step"] * 1e3, fault["alone_ms_per_step"] * 1e3
        found = next((f for f in causes if names(f, culprit, kind, fault["steps"])), None)
        priced = kind not in ("fragmentation", "memory_leak")
        free = priced and max(saved_us, alone_us) < FREE_SHARE * step_us
        given_us = None if found is None or not priced else found.saves_us_per_step
        share = saved_us / alone_us if alone_us > 0 else 1.0
        said = found is not None and any(e.fact.startswith("masked") for e in found.evidence)
        rows.append({
            "fault": kind, "culprit": culprit, "is_first": bool(causes) and causes[0] is found,
            "is_found": found is not None, "is_free": free, "step_us": step_us, "saved_us": saved_us,
            "alone_us": alone_us, "given_us": given_us,
            "is_masked": None if abs(share - MASKED_SHARE) < UNCLEAR or not priced else share < MASKED_SHARE,
            "said_masked": said,
        })  # fmt: skip
    return rows or [{"fault": "healthy", "culprit": {}, "is_first": not causes, "is_found": not causes}]


def diagnosed(tool: Path, case: Case, steps: int) -> dict[str, Any]:
    """Make the cluster of a case, diagnose it, and compare with its truth."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(tool), folder, "--steps", str(steps), "--no-trace", *case.arguments]
        subprocess.run(command, check=True, capture_output=True)
        truth = json.loads((Path(folder) / "truth.json").read_text())
        begin = time.perf_counter()
        causes = [f for f in diagnose(folder).causes if f.severity != "info"]
        seconds = time.perf_counter() - begin
    return {
        "series": case.series, "ranks": case.ranks, "seed": case.seed, "arguments": " ".join(case.arguments),
        "steps": steps, "seconds": round(seconds, 2), "causes": [f.cause for f in causes],
        "faults": judged(case, causes, truth),
    }  # fmt: skip


def run(arguments: argparse.Namespace) -> None:
    """Run the cases that are not among the results yet."""
    known = {line["arguments"] for line in read(arguments.results)}
    wanted = all_cases(arguments.series, arguments.ranks, arguments.seeds, arguments.healthy)
    todo = [c for c in wanted if " ".join(c.arguments) not in known and is_wanted(c, arguments.only)]
    with ProcessPoolExecutor(arguments.jobs) as pool, arguments.results.open("a") as out:
        waiting = [pool.submit(diagnosed, arguments.tool, case, arguments.steps) for case in todo]
        for number, result in enumerate(waiting, 1):
            line = result.result()
            print(json.dumps(line), file=out, flush=True)
            wrong = "" if all(f["is_found"] or f.get("is_free") for f in line["faults"]) else "  <- not found"
            print(
                f"{number}/{len(todo)} {line['arguments']}: {', '.join(line['causes']) or 'healthy'}{wrong}", flush=True
            )


def is_wanted(case: Case, only: list[str] | None) -> bool:
    """Whether the case has one of the fault kinds in `only`."""
    return not only or bool({kind for kind, _ in case.faults} & set(only))


def read(path: Path) -> list[dict[str, Any]]:
    """Results so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def as_table(lines: list[dict[str, Any]]) -> pd.DataFrame:
    """One row per fault of each cluster: what was found, and by how much its gain is off."""
    rows = []
    for line in lines:
        first = line["causes"][0] if line["causes"] else "healthy"
        shared = {k: line[k] for k in ("series", "ranks", "seed", "arguments", "seconds")}
        rows += [
            shared | {"first": first, "extra": len(line["causes"]) - len(line["faults"])} | f for f in line["faults"]
        ]
    table = pd.DataFrame(rows)
    for column in ("given_us", "saved_us", "alone_us", "step_us"):
        table[column] = pd.to_numeric(table.get(column, pd.Series(dtype=float)))
    table["is_free"] = table.get("is_free", pd.Series(index=table.index, dtype=bool)).fillna(False).astype(bool)
    table["is_first"] |= table["is_free"] & (table["first"] == "healthy")
    off_us = table["given_us"] - table["saved_us"]
    return table.assign(step_off=off_us / (table["step_us"] - table["saved_us"]), gain_off=off_us / table["saved_us"])


def as_markdown(lines: list[dict[str, Any]]) -> str:
    """The confusion matrix, the gains, pairs, and all that was wrong, as a section of the docs."""
    table = as_table(lines)
    one, weak, pairs = (table[table["series"].isin(names)] for names in (("single", "healthy"), ("weak",), ("pairs",)))
    parts = [_matrix(one), ""]
    parts += [_said(one, size, of_size) for size, of_size in one.groupby("ranks")]
    parts.append("\n" + _gains(one[one["fault"] != "healthy"]))
    if len(weak):
        parts.append("\n" + _weak(weak))
    if len(pairs):
        parts.append("\n" + _pairs(pairs))
    wrong = one[~one["is_first"]]
    parts += [f"- wrong: `{r.arguments}`: first {r.first}" for r in wrong.itertuples()]
    return "\n".join(parts)


def _matrix(one: pd.DataFrame) -> str:
    matrix = pd.crosstab(one["fault"], one["first"])
    return _rows(matrix.reset_index().rename(columns={"fault": "fault, first cause"}).replace(0, ""))


def _said(one: pd.DataFrame, size: object, of_size: pd.DataFrame) -> str:
    faults, healthy = of_size[of_size["fault"] != "healthy"], of_size[of_size["fault"] == "healthy"]
    seeds = ", ".join(map(str, sorted(faults["seed"].unique())))
    return (
        f"- {size} ranks, seeds {seeds}: {int(faults['is_first'].sum())} of {len(faults)} faults named first, place "
        f"and steps included ({int(faults['is_free'].sum())} cost less than {FREE_SHARE:.0%} of the step: healthy is "
        f"right too); {int((~healthy['is_first']).sum())} false alarms on {len(healthy)} healthy clusters; "
        f"diagnosis {of_size['seconds'].median():.1f} s (median), {of_size['seconds'].max():.1f} s (longest)."
    )


def _gains(faults: pd.DataFrame) -> str:
    rows = []
    for kind, of_kind in faults[faults["given_us"].notna() & ~faults["is_free"]].groupby("fault"):
        step, gain = of_kind["step_off"].abs(), of_kind["gain_off"].abs()
        rows.append((kind, len(of_kind), *(f"{v:.2%}" for v in (step.median(), step.max(), gain.median(), gain.max()))))
    columns = ["fault", "clusters", "step time off, median", "worst", "gain off, median", "worst gain"]
    off = faults.loc[~faults["is_free"], "step_off"].abs().dropna()
    text = f"Step time without the fault against the truth: median {off.median():.2%} off, worst {off.max():.2%}."
    return f"{text}\n\n{_rows(pd.DataFrame(rows, columns=columns))}"


def _weak(weak: pd.DataFrame) -> str:
    costly = weak[~weak["is_free"]]
    off, wrong = costly["step_off"].abs().dropna(), costly[~costly["is_first"]]
    misled = weak["is_free"] & (weak["first"] != "healthy") & ~weak["is_found"]
    lines = [
        f"Weaker faults that cost {FREE_SHARE:.0%} of the step or more: {len(costly) - len(wrong)} of {len(costly)} "
        f"named first, place and steps included; step time median {off.median():.2%} off, worst {off.max():.2%}. Of "
        f"the {int(weak['is_free'].sum())} that cost less, {int(misled.sum())} led to another cause."
    ]
    return "\n".join([*lines, *(f"- not first: `{r.arguments}`: {r.first}" for r in wrong.itertuples())])


def _pairs(pairs: pd.DataFrame) -> str:
    known = pairs[pairs["is_found"] & pairs["is_masked"].notna()]
    mistaken = known[known["is_masked"].astype(bool) != known["said_masked"].astype(bool)]
    costly = pairs[~pairs["is_free"]]
    off, missed = costly["step_off"].abs().dropna(), costly[~costly["is_found"]]
    masked, further = int(known["is_masked"].astype(bool).sum()), pairs.drop_duplicates("arguments")["extra"] > 0
    lines = [
        f"Two faults at once: {len(costly) - len(missed)} of {len(costly)} faults found in "
        f"{pairs['arguments'].nunique()} clusters; {len(known) - len(mistaken)} of {len(known)} rightly called masked "
        f"or not ({masked} are); step time median {off.median():.2%} off, worst {off.max():.2%}; "
        f"{int(further.sum())} clusters with a further finding."
    ]
    lines += [f"- not found: {r.fault} of `{r.arguments}`" for r in missed.itertuples()]
    return "\n".join(
        [*lines, *(f"- wrongly masked or not: {r.fault} of `{r.arguments}`" for r in mistaken.itertuples())]
    )


def _rows(table: pd.DataFrame) -> str:
    lines = [f"| {' | '.join(map(str, table.columns))} |", f"|{' --- |' * len(table.columns)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in table.itertuples(index=False))])


def main() -> None:
    """Run the cases that are asked for, print the matrix, and put it into the docs if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", type=Path, help="make_cluster.py; without it only the results are shown")
    parser.add_argument("--results", type=Path, required=True, help="one line per cluster, added to")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--healthy", type=int, default=20, help="healthy clusters per size")
    parser.add_argument("--series", nargs="+", choices=SERIES, default=SERIES)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", nargs="+", help="only these faults")
    parser.add_argument("--write", type=Path, help="document whose matrix to replace")
    arguments = parser.parse_args()
    if arguments.tool:
        run(arguments)
    text = as_markdown(read(arguments.results))
    print(text)
    if arguments.write:
        write_section(arguments.write, "matrix", text)


if __name__ == "__main__":
    main()
