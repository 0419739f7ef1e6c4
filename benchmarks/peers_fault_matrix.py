"""The same simulated clusters through msprof-analyze and through this package: what each of them names, per fault.

    python -m venv peer && peer/bin/pip install msprof-analyze==26.2.0
    python benchmarks/peers_fault_matrix.py --tool make_cluster.py --peer peer/bin/msprof-analyze --keep outputs \
        --write docs/fault_matrix.md

Each cluster (8 ranks, 6 steps, with traces) goes through `advisor all -l en -pt mindspore` and `cluster -m all`. How
the peer is read: a row of the advisor's printed table is a statement if it says that something is wrong; rows that list
numbers or candidates whatever the run is like (`NEUTRAL`) are none, bandwidths are one if they differ by a tenth. A
statement names the cause if it speaks of it in any words (`Peer.cause`), and the place if it names the rank, link or
stage (`Peer.place`; for an operator its rank is enough). Statements about something else are beside the point.
`cluster` writes tables and states nothing; it is run to see that it can.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from document import write_section

from workbench.findings.diagnosis import diagnose

NEUTRAL = (
    r"Operator Perf Analysis", r"no bound issues", r"Fusible Operator Analysis: .*-?0\.0\d* for host bottleneck",
    r"There is no slow rank issues",
)  # fmt: skip
MARKS = {True: "yes", False: "no", None: "–"}


class Peer(NamedTuple):
    """A cluster, and what a statement about its fault contains (None: there is no place to name)."""

    fault: str
    arguments: tuple[str, ...]
    cause: str | None = None
    place: str | None = None


PEERS = (
    Peer("healthy", ()),
    Peer("healthy, 4 stages", ("--pp", "4")),
    Peer("slow_rank", ("--fault", "slow_rank:3:1.4"), r"Computing has some issues|Kernel compare", r"Rank ?3\b"),
    Peer("slow_op", ("--fault", "slow_op:2:FlashAttentionScore:2.0"), r"Computing has some issues|Kernel compare",
         r"Rank ?2\b"),
    Peer("slow_link", ("--fault", "slow_link:1:4:4.0"), r"slow link|bandwidth", r"\b1\b.{1,12}\b4\b"),
    Peer("data_starved", ("--fault", "data_starved:60"), r"[Dd]ata ?[Ll]oad|[Dd]ata ?set|Free has some"),
    Peer("data_starved, rank 5", ("--fault", "data_starved:60:5"), r"[Dd]ata ?[Ll]oad|[Dd]ata ?set|Free has some",
         r"[Rr]ank ?5\b"),
    Peer("stall_steps", ("--fault", "stall_steps:1:200:2"), r"stall|jitter|fluctuat|outlier", r"[Rr]ank ?2\b"),
    Peer("unfused_allreduce", ("--fault", "unfused_allreduce:32"), r"small communication packets|Packet|fuse"),
    Peer("no_overlap", ("--fault", "no_overlap"), r"overlap|not hidden"),
    Peer("pipeline_bubble, 4 micro-batches", ("--fault", "pipeline_bubble:4"), r"bubble|micro.?batch"),
    Peer("pipeline_bubble, slow stage 2", ("--fault", "pipeline_bubble:16:2:1.5"),
         r"bubble|stage|Computing has some issues|Kernel compare", r"[Ss]tage ?2|Rank ?[45]\b"),
    Peer("fragmentation", ("--fault", "fragmentation"), r"fragment"),
    Peer("memory_leak", ("--fault", "memory_leak"), r"leak|memory grow"),
    Peer("small_ops", ("--fault", "small_ops:2000"), r"[Dd]ispatch|host bottleneck|small operator|Fusible"),
    Peer("recompile", ("--fault", "recompile:1"), r"compil|dynamic shape"),
)  # fmt: skip


def statements(printed: str) -> list[str]:
    """Rows of the advisor's table that say that something is wrong, as `category: description`."""
    rows: list[list[str]] = []
    for line in printed.splitlines():
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        if not line.startswith("|") or len(cells) < 3 or cells[0] == "No.":
            continue
        if cells[0]:
            rows.append([cells[1], cells[2]])
        elif rows:
            rows[-1][0] = f"{rows[-1][0]} {cells[1]}".strip()
            rows[-1][1] = f"{rows[-1][1]} {cells[2]}".strip()
    texts = [re.sub(r"\s+", " ", f"{category}: {description}") for category, description in rows]
    parts = [p for t in texts for p in _issues(t)]
    return [p for p in parts if not any(re.search(n, p) for n in NEUTRAL)]


def _issues(text: str) -> list[str]:
    """The slow-rank row lists an issue for each of computing, communication and free; slow link lists bandwidths."""
    if text.startswith("slow link:"):
        spread = re.findall(r"average is ([\d.]+).*?difference is ([\d.]+)", text)
        return [f"slow link: bandwidths differ by {d} around {a} GB/s" for a, d in spread if float(d) > 0.1 * float(a)]
    found = re.findall(r"(\w+) has some issues", text)
    return [f"slow rank: {what} has some issues" for what in found] if found else [text]


def ours(folder: Path) -> str:
    """Our first cause with its place."""
    causes = [f for f in diagnose(folder).causes if f.severity != "info"]
    if not causes:
        return "healthy"
    who, steps = causes[0].culprit, causes[0].steps.list
    parts = [f"rank {who.rank}"] if who.rank is not None else []
    parts += [str(who.op)] if who.op is not None else []
    parts += [f"link {who.link}"] if who.link is not None else []
    parts += [f"stage {who.stage}"] if who.stage is not None else []
    parts += [f"steps {list(steps)}"] if steps else []
    more = f" (and {', '.join(f.cause for f in causes[1:])})" if len(causes) > 1 else ""
    return ", ".join([causes[0].cause, *parts]) + more


def compared(peer: Peer, tool: Path, executable: Path, keep: Path) -> dict[str, Any]:
    """Make the cluster, run both, and keep what the peer printed."""
    out = keep / re.sub(r"\W+", "_", peer.fault)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "cluster"
        make = [sys.executable, str(tool), str(folder), "--ranks", "8", "--steps", "6", "--seed", "21", *peer.arguments]
        subprocess.run(make, check=True, capture_output=True)
        found = ours(folder)
        advise = [str(executable), "advisor", "all", "-d", str(folder), "-o", name, "-l", "en", "-pt", "mindspore"]
        printed = subprocess.run(advise, check=False, capture_output=True, text=True, cwd=name)
        (out / "advisor.txt").write_text(printed.stdout + printed.stderr)
        group = [str(executable), "cluster", "-m", "all", "-d", str(folder), "-o", f"{name}/analysis"]
        tables = subprocess.run(group, check=False, capture_output=True, text=True, cwd=name)
        (out / "cluster.txt").write_text(tables.stdout + tables.stderr)
        written = sorted(p.name for p in Path(name, "analysis").rglob("*") if p.is_file())
    said = {"ours": found, "exit": [printed.returncode, tables.returncode], "cluster_files": written}
    (out / "result.json").write_text(json.dumps(said))
    return said


def row(peer: Peer, keep: Path) -> str | None:
    """A row of the table from the kept outputs; None if the case has not run."""
    out = keep / re.sub(r"\W+", "_", peer.fault)
    if not (out / "result.json").exists():
        return None
    found = statements((out / "advisor.txt").read_text())
    about = [s for s in found if peer.cause and re.search(peer.cause, s)]
    place = any(re.search(peer.place, s) for s in about) if peer.place else None
    said = "; ".join(_short(s) for s in found) or "nothing"
    marks = [MARKS[bool(about)] if peer.cause else MARKS[None], MARKS[place], str(len(found) - len(about))]
    cells = [peer.fault, json.loads((out / "result.json").read_text())["ours"], said, *marks]
    return f"| {' | '.join(cells)} |"


def _short(statement: str) -> str:
    return statement.split(": Kernel compare")[0].split(". ")[0][:90].replace("|", "/")


def main() -> None:
    """Run what is asked for, print the table, and put it into the docs if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", type=Path, help="make_cluster.py; without it only kept outputs are read")
    parser.add_argument("--peer", type=Path, help="the msprof-analyze executable")
    parser.add_argument(
        "--keep", type=Path, required=True, help="folder for what the peer prints; known cases are not run again"
    )
    parser.add_argument("--write", type=Path, help="document whose table to replace")
    arguments = parser.parse_args()
    for peer in PEERS if arguments.tool and arguments.peer else ():
        if row(peer, arguments.keep) is None:
            print(
                peer.fault,
                compared(peer, arguments.tool, arguments.peer.absolute(), arguments.keep.absolute()),
                flush=True,
            )
    head = "| fault | ours: first cause, place | msprof-analyze 26.2.0 states | cause | place | beside the point |"
    text = "\n".join([head, "|" + " --- |" * 6, *(r for p in PEERS if (r := row(p, arguments.keep)))])
    print(text)
    if arguments.write:
        write_section(arguments.write, "peers", text)


if __name__ == "__main__":
    main()
