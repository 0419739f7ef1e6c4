"""The explorer's tabs and the boards, as data: which tables each reads, and its parts from top to bottom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.findings.finding import Finding
from workbench.widgets import compare_sections as compare
from workbench.widgets import data_pipeline as pipeline
from workbench.widgets import data_sections as data
from workbench.widgets import device_sections as devices
from workbench.widgets import layer_sections, memory_sections, sections, telemetry_sections, timeline_sections
from workbench.widgets import subset_sections as subsets
from workbench.widgets.page import Shown, Tab
from workbench.widgets.sections import Missing, Text

LOOKING = "Looking for causes …"
NO_OTHER = "Choose a second run above: any run directory, folder of logs, or profile."


def _verdict(shown: Shown) -> Any:
    if shown.diagnosis is None:
        return Text(LOOKING)
    return sections.verdict(shown.diagnosis, shown.tables, shown.checkpoint)


def _causes(shown: Shown) -> Any:
    return Text("") if shown.causes is None else shown.causes


def _both(shown: Shown) -> dict[str, Any] | None:
    """The tables of the run and of the one to compare with, by the names that tell them apart."""
    if shown.other is None:
        return None
    first, second = compare.names(shown.run.run_id, shown.other.run.run_id)
    return {first: shown.tables, second: shown.other.tables}


def _compared(part: Any) -> Any:
    def made(shown: Shown) -> Any:
        both = _both(shown)
        return Missing(NO_OTHER) if both is None else part(both)

    return made


def _compared_steps(shown: Shown) -> Any:
    both = _both(shown)
    if both is None or shown.other is None:
        return Missing(NO_OTHER)
    steps = (shown.device_steps, shown.other.device_steps)
    return compare.step_parts(both, dict(zip(both, steps, strict=True)))


def _compared_causes(shown: Shown) -> Any:
    if shown.other is None:
        return Missing(NO_OTHER)
    return compare.causes_table(shown.diagnosis, shown.other.diagnosis)


TABS: Mapping[str, Tab] = {
    "Overview": Tab(
        tables=(*sections.NAMES, "step_time"),
        parts={
            "verdict": _verdict,
            "causes": _causes,
            "loss": lambda s: sections.loss(s.tables),
            "step time": lambda s: sections.step_times(s.tables),
            "step of each rank": lambda s: devices.profiled_ranks(s.tables),
            "loss per subset": lambda s: sections.quality_over_time(s.tables, s.checkpoint),
        },
    ),
    "Training": Tab(
        tables=(*sections.NAMES, "layer_statistics"),
        parts={
            "stability": lambda s: sections.stability(s.tables),
            "loss": lambda s: sections.loss(s.tables),
            "gradient norm": lambda s: sections.gradient_norm(s.tables),
            "ratios": lambda s: sections.group_ratios(s.tables),
            "learning rate": lambda s: sections.learning_rate(s.tables),
            "signals together": lambda s: subsets.layers(s.tables),
            "layers": lambda s: layer_sections.heatmap(s.tables),
        },
    ),
    "Timeline": Tab(
        tables=devices.STEP_TABLES,
        parts={
            "step time": lambda s: sections.step_times(s.tables),
            "speed": lambda s: sections.speed(s.tables),
            "where the time went": lambda s: sections.time_shares(s.tables),
            "efficiency": lambda s: sections.efficiency(s.tables),
            "ranks over time": lambda s: timeline_sections.rank_timeline(s.rows, s.all_ranks, s.ranks, s.steps, s.rank),
            "tasks": lambda s: timeline_sections.stream_timeline(s.rows, s.all_ranks, s.steps, s.rank),
            "profiled steps": lambda s: devices.step_parts(s.device_steps, s.rank),
            "stalled steps": lambda s: devices.stalls(s.device_steps, s.all_ranks),
        },
    ),
    "Operators": Tab(
        tables=("kernels",),
        parts={
            "operators": lambda s: devices.operators(s.run, s.ranks, s.steps),
            "operators by rank": lambda s: devices.operators_by_rank(s.all_ranks, s.ranks),
            "work": lambda s: devices.work(s.all_ranks, s.ranks),
            "fusion": lambda s: devices.fusion(s.tables),
        },
    ),
    "Ranks": Tab(
        tables=(*devices.STEP_TABLES, "telemetry"),
        parts={
            "step of each rank": lambda s: devices.rank_parts(s.device_steps, s.ranks),
            "own time": lambda s: devices.own_time(s.device_steps, s.all_ranks, s.ranks),
            "recorded steps": lambda s: devices.recorded_ranks(s.all_ranks, s.ranks),
            "stages": lambda s: devices.bubbles(s.device_steps, s.all_ranks),
            "physical reasons": lambda s: telemetry_sections.verdict(s.all_ranks, s.rank),
            "card and host": lambda s: telemetry_sections.course(s.all_ranks, s.rank),
        },
    ),
    "Communication": Tab(
        tables=("collectives", "links", "kernels", "settings"),
        parts={
            "waits": lambda s: devices.waits(s.all_ranks, s.ranks),
            "late ranks": lambda s: devices.late_ranks(s.all_ranks, s.ranks),
            "kinds": lambda s: devices.kinds(s.all_ranks),
            "links": lambda s: devices.link_matrix(s.all_ranks),
            "latency": lambda s: devices.latency(s.all_ranks),
        },
    ),
    "Memory": Tab(
        tables=(*memory_sections.NAMES, "training_steps"),
        parts={
            "memory": lambda s: sections.memory(s.tables),
            "peaks": lambda s: memory_sections.rank_peaks(s.tables),
            "pool": lambda s: memory_sections.pool(s.all_ranks, s.rank),
            "who holds the peak": lambda s: memory_sections.peak_parts(s.all_ranks, s.rank),
            "addresses": lambda s: memory_sections.memory_map(s.all_ranks, s.rank),
            "floors": lambda s: memory_sections.floors(s.tables),
            "growth": lambda s: memory_sections.growth(s.tables),
            "savings": lambda s: memory_sections.savings(s.all_ranks, s.rank),
        },
    ),
    "Data": Tab(
        tables=(*pipeline.NAMES, *data.NAMES),
        parts={
            "pipeline": lambda s: pipeline.verdict(s.all_ranks),
            "data operators": lambda s: pipeline.operators(s.all_ranks, rank_id=s.rank),
            "waits": lambda s: pipeline.waits(s.all_ranks, rank_id=s.rank),
            "health": lambda s: data.ailments(s.tables),
            "lengths": lambda s: data.lengths_of_samples(s.tables),
            "tokens": lambda s: data.tokens(s.tables),
            "order": lambda s: data.order(s.tables),
            "mix": lambda s: data.mix(s.tables),
        },
    ),
    "Evaluation": Tab(
        tables=subsets.NAMES,
        parts={
            "quality": lambda s: sections.quality(s.tables, s.checkpoint),
            "changes": lambda s: sections.changes(s.tables, s.checkpoint),
            "loss per subset": lambda s: sections.quality_over_time(s.tables, s.checkpoint),
            "accuracy per subset": lambda s: sections.quality_over_time(
                s.tables, s.checkpoint, metric="next_token_accuracy"
            ),
            "drops": lambda s: subsets.drops(s.tables),
            "positions": lambda s: subsets.positions(s.tables),
            "choice": lambda s: subsets.choice(s.tables),
        },
    ),
    "Compare": Tab(
        tables=("training_steps", "events", "kernels", "settings"),
        parts={
            "step times": _compared(compare.verdict),
            "parts": _compared_steps,
            "operators": _compared(compare.operators),
            "losses": _compared(compare.loss),
            "parting": _compared(compare.parting),
            "found": _compared_causes,
            "settings": _compared(compare.settings),
        },
    ),
}

BOARDS: Mapping[str, Tab] = {
    "Training quality": Tab(
        tables=tuple(dict.fromkeys((*sections.NAMES, *subsets.NAMES))),
        parts={
            "stability": lambda s: sections.stability(s.tables),
            "loss": lambda s: sections.loss(s.tables),
            "gradient norm": lambda s: sections.gradient_norm(s.tables),
            "loss per subset": lambda s: sections.quality_over_time(s.tables, s.checkpoint),
            "quality": lambda s: sections.quality(s.tables, s.checkpoint),
        },
    ),
    "Resource efficiency": Tab(
        tables=("training_steps", "events", "step_time", "telemetry", "memory_timeline"),
        parts={
            "efficiency": lambda s: sections.efficiency(s.tables),
            "step time": lambda s: sections.step_times(s.tables),
            "speed": lambda s: sections.speed(s.tables),
            "where the time went": lambda s: sections.time_shares(s.tables),
            "step of each rank": lambda s: devices.profiled_ranks(s.tables),
            "memory": lambda s: sections.memory(s.tables),
            "peaks": lambda s: memory_sections.rank_peaks(s.tables),
            "card and host": lambda s: telemetry_sections.course(s.all_ranks, s.rank),
        },
    ),
    "Data health": Tab(
        tables=(*pipeline.NAMES, *data.NAMES),
        parts={
            "ailments": lambda s: data.verdict(s.tables),
            "health": lambda s: data.ailments(s.tables),
            "lengths": lambda s: data.lengths_of_samples(s.tables),
            "mix": lambda s: data.mix(s.tables),
            "order": lambda s: data.order(s.tables),
            "batches": lambda s: data.batches(s.tables),
            "pipeline": lambda s: pipeline.verdict(s.all_ranks),
            "waits": lambda s: pipeline.waits(s.all_ranks, rank_id=s.rank),
        },
    ),
}

TAB_OF_CAUSE = {  # where a cause is seen best, whichever table tells it first
    "slow_rank": "Ranks", "rank_late": "Ranks", "pipeline_bubble": "Ranks", "stall_steps": "Timeline",
    "data_starved": "Data", "small_ops": "Operators", "slow_op": "Operators", "recompile": "Timeline",
    "memory_leak": "Memory", "host_side_accumulation": "Timeline", "checkpoint_stall": "Timeline",
    "evaluation_interference": "Timeline", "step_time_drift": "Timeline", "host_gc_jitter": "Timeline",
}  # fmt: skip
TAB_OF_TABLE = {
    "step_time": "Timeline", "events": "Timeline", "trace_events": "Timeline", "host_ops": "Timeline",
    "kernels": "Operators", "kernel_totals": "Operators", "collectives": "Communication", "links": "Communication",
    "memory_timeline": "Memory", "tensor_lifetimes": "Memory", "telemetry": "Ranks", "data_ops": "Data",
    "data_batches": "Data", "data_queue_samples": "Data", "data_samples": "Data", "sample_ids": "Data",
    "data_mix": "Data", "evals": "Evaluation", "eval_samples": "Evaluation",
}  # fmt: skip

TAB_OF_PLAYBOOK = {"T3": "Memory", "T4": "Communication", "T5": "Evaluation", "T6": "Data", "T7": "Timeline",
                   "T8": "Timeline", "T9": "Memory", "E7": "Timeline"}  # fmt: skip


def evidence_tab(finding: Finding) -> str:
    """The tab that shows a finding's evidence: by its cause, else by a table of its facts, else by its playbook."""
    tables = [TAB_OF_TABLE[e.table] for e in finding.evidence if e.table in TAB_OF_TABLE]
    return TAB_OF_CAUSE.get(finding.cause) or next(iter(tables), TAB_OF_PLAYBOOK.get(finding.playbook, "Training"))
