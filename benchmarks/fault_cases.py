"""Faults to simulate: every kind at places that a seed chooses, pairs of them, and healthy clusters."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

SERIES = ("single", "weak", "pairs", "healthy")
OPS = ("FlashAttentionScore", "MatMulV3", "SwiGluGrad", "RmsNorm")
LAYERS = ("HCCL", "Communication")
LARGE = 32  # ranks: above it fewer pipelines, whose profiles are several times longer
PER_HOST = 8  # cards of a host in make_cluster.py
HEALTHY_SEED = 100
PAIRS = (  # kinds, by the names of `_Places.fault`
    ("slow_rank", "data_starved"), ("slow_rank", "second_slow_rank"), ("slow_op", "slow_link"),
    ("slow_rank", "no_overlap"), ("stall_steps", "slow_op"), ("small_ops", "data_starved"),
    ("fragmentation", "slow_link"), ("memory_leak", "recompile"), ("unfused_allreduce", "slow_link"),
    ("slow_stage", "slow_op"), ("late_data", "slow_rank"),
)  # fmt: skip

Fault = tuple[str, dict[str, Any]]  # kind, and what of the culprit a right finding names


class Case(NamedTuple):
    """One cluster to make, and what a right diagnosis names."""

    series: str
    ranks: int
    seed: int
    arguments: list[str]
    faults: list[Fault]


def all_cases(series: Iterable[str], ranks: Iterable[int], seeds: Iterable[int], healthy: int) -> Iterator[Case]:
    """All clusters of the wanted series."""
    for count in ranks:
        for seed in seeds:
            if "single" in series:
                yield from single_faults(count, seed)
            if "weak" in series:
                yield from weak_faults(count, seed)
            if "pairs" in series:
                yield from pairs(count, seed)
        if "healthy" in series:
            yield from healthy_clusters(count, healthy)


def single_faults(ranks: int, seed: int) -> Iterator[Case]:
    """All fault kinds at places that the seed chooses."""
    pick = random.Random(1000 * ranks + seed)
    for number, kind in enumerate(KINDS):
        pp = (
            pick.choice((1, 1, 1, 2) if ranks > LARGE else (1, 1, 2, 4))
            if kind in ANY_LAYOUT
            else 4
            if kind in PIPELINE
            else 1
        )
        yield _case("single", ranks, seed, pp, LAYERS[(number + seed) % 2], [_fault(kind, pick, ranks // pp, pp)])


def weak_faults(ranks: int, seed: int) -> Iterator[Case]:
    """Faults of other strengths, most of them weaker, at places that the seed chooses."""
    pick = random.Random(3000 * ranks + seed)
    for number, kind in enumerate(KINDS):
        pp = 4 if kind in PIPELINE else 1
        fault = _fault(kind, pick, ranks // pp, pp, strength=pick.choice(WEAK[kind]))
        yield _case("weak", ranks, seed, pp, LAYERS[(number + seed) % 2], [fault])


def pairs(ranks: int, seed: int) -> Iterator[Case]:
    """Two faults at once."""
    pick = random.Random(7000 * ranks + seed)
    for number, kinds in enumerate(PAIRS):
        pp = 4 if set(kinds) & set(PIPELINE) else 1
        taken: set[int] = set()
        faults = [_fault(kind, pick, ranks // pp, pp, taken) for kind in kinds]
        yield _case("pairs", ranks, seed, pp, LAYERS[(number + seed) % 2], faults)


def healthy_clusters(ranks: int, count: int) -> Iterator[Case]:
    """Healthy clusters of several layouts."""
    for number in range(count):
        yield _case("healthy", ranks, HEALTHY_SEED + number, (1, 2, 4)[number % 3], LAYERS[number // 3 % 2], [])


def _case(series: str, ranks: int, seed: int, pp: int, layer: str, faults: list[tuple[str, Fault]]) -> Case:
    words = ["--ranks", str(ranks), "--seed", str(seed), "--comm-layer", layer]
    words += ["--pp", str(pp)] if pp > 1 else []
    words += [word for spec, _ in faults for word in ("--fault", spec)]
    return Case(series, ranks, seed, words, [fault for _, fault in faults])


def _fault(
    kind: str, pick: random.Random, width: int, pp: int, taken: set[int] | None = None, strength: str | None = None
) -> tuple[str, Fault]:
    """Specification for make_cluster.py of a fault, and what names it. `width`: ranks of a pipeline stage."""
    taken = set() if taken is None else taken
    rank = pick.choice([r for r in range(width * pp) if r not in taken])
    taken.add(rank)
    first = rank // min(width, PER_HOST) * min(width, PER_HOST)  # of the ranks of the stage on this host
    other = pick.choice([r for r in range(first, first + min(width, PER_HOST)) if r != rank])
    op, stage, how = pick.choice(OPS), pick.randrange(pp), STRONG[kind] if strength is None else strength
    specs: dict[str, tuple[str, dict[str, Any]]] = {
        "slow_rank": (f"slow_rank:{rank}:{how}", {"rank": rank}),
        "second_slow_rank": (f"slow_rank:{rank}:{how}", {"rank": rank}),
        "slow_op": (f"slow_op:{rank}:{op}:{how}", {"rank": rank, "op": op}),
        "slow_link": (f"slow_link:{rank}:{other}:{how}", {"link": f"{rank}-{other}"}),
        "late_data": (f"data_starved:{how}:{rank}", {"rank": rank}),
        "stall_steps": (f"stall_steps:{how}:{rank}", {"rank": rank}),
        "few_micro_batches": (f"pipeline_bubble:{how}", {}),
        "slow_stage": (f"pipeline_bubble:16:{stage}:{how}", {"stage": stage}),
    }
    spec, culprit = specs.get(kind, (f"{kind}:{how}", {}))
    return spec.rstrip(":"), (spec.split(":")[0], culprit)


STRONG = {  # kind -> how strong, as make_cluster.py takes it
    "slow_rank": "1.4", "second_slow_rank": "1.3", "slow_op": "2.0", "slow_link": "4.0", "data_starved": "60",
    "late_data": "60", "stall_steps": "2:200", "unfused_allreduce": "32", "no_overlap": "", "few_micro_batches": "4",
    "slow_stage": "1.5", "fragmentation": "1.8", "memory_leak": "300", "small_ops": "2000", "recompile": "2:900",
}  # fmt: skip
WEAK = {
    "slow_rank": ("1.05", "1.1", "1.2"), "slow_op": ("1.2", "1.5", "3.0"), "slow_link": ("1.5", "2.0", "8.0"),
    "data_starved": ("8", "20"), "late_data": ("8", "20"), "stall_steps": ("1:50", "3:60", "1:1000"),
    "unfused_allreduce": ("8", "16", "64"), "no_overlap": ("",), "few_micro_batches": ("2", "6", "8", "12"),
    "slow_stage": ("1.1", "1.2", "2.0"), "fragmentation": ("1.4", "2.5"), "memory_leak": ("50", "100", "800"),
    "small_ops": ("600", "1200"), "recompile": ("1:100", "3:300"),
}  # fmt: skip
KINDS = tuple(WEAK)
PIPELINE = ("few_micro_batches", "slow_stage")
ANY_LAYOUT = ("slow_rank", "slow_op", "slow_link", "data_starved", "late_data", "stall_steps", "fragmentation",
              "memory_leak", "recompile")  # fmt: skip
