"""One line per layer of a run: quality, stability, efficiency, each with a word that can be read at a glance."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from workbench.analyses.evaluation import ALL_SUBSETS, checkpoints_in_order
from workbench.analyses.summaries import efficiency_summary, quality_summary, stability_summary
from workbench.findings.data_health import find_bad_samples
from workbench.findings.diagnosis import Diagnosis, ranked
from workbench.findings.shown import CELL

LAYERS = ("quality", "stability", "efficiency")
LAYER_OF_CAUSE = {
    **dict.fromkeys(("subset_regression", "data_mix_shift", "tokenizer_special_tokens", "context_length_shift",
                     "forgetting", "degenerate_output", "label_leak"), "quality"),
    **dict.fromkeys(("lr_schedule_error", "lr_too_high", "no_gradient_clipping", "resume_state_lost",
                     "loss_normalisation", "bad_batch", "loss_not_finite", "loss_spike", "fp16_overflow",
                     "precision_or_optimizer_mismatch", "layer_drift", "checkpoint_corrupt", "duplicate_data",
                     "empty_data", "truncated_samples", "small_shuffle_buffer", "dropped_samples",
                     "tokenizer_coverage"), "stability"),
}  # fmt: skip
WORDS = {"critical": "bad", "warning": "attention"}
PROFILE = frozenset({"step_time", "kernels"})
UNMEASURED = {
    "quality": "No evaluation is recorded.",
    "stability": "No training steps are recorded.",
    "efficiency": "Neither the time of training steps nor a device profile is there.",
}
COLOURS = {"good": "#116329", "attention": "#9a5b00", "bad": "#b3261e", "not measured": "#57606a"}


@dataclass(frozen=True)
class Verdict:
    """Lines of layer, word ("good", "attention", "bad", "not measured") and sentence; shows itself in colour."""

    lines: pd.DataFrame

    def __repr__(self) -> str:
        return "\n".join(f"{r.layer}: {r.word}. {r.sentence}" for r in self.lines.itertuples())

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td style='{CELL};font-weight:600'>{html.escape(str(r.layer).capitalize())}</td>"
            f"<td style='{CELL}'><b style='color:{COLOURS[str(r.word)]}'>{html.escape(str(r.word))}</b></td>"
            f"<td style='{CELL}'>{html.escape(str(r.sentence))}</td></tr>"
            for r in self.lines.itertuples()
        )
        return f"<table style='font-size:15px'>{rows}</table>"


def data_verdict(samples: pd.DataFrame) -> Diagnosis:
    """What ails a data set on its own, without a run.

    Args:
        samples: table `data_samples`.
    """
    coverage = {"ranks": [], "steps": None, "tables": ["data_samples"] if len(samples) else [], "missing": []}
    names = ", ".join(sorted(set(samples["dataset"])))
    return Diagnosis(run=names, coverage=coverage, causes=tuple(ranked(find_bad_samples(samples))))


def verdict(diagnosis: Diagnosis, tables: Mapping[str, pd.DataFrame], *, checkpoint: str | None = None) -> Verdict:
    """The verdict on each layer: the worst finding of the layer decides the word, its numbers follow.

    Args:
        diagnosis: what was found.
        tables: tables of the run, as `diagnosis.run_tables` returns them.
        checkpoint: checkpoint whose quality is meant; the last one by default.
    """
    sentences = {
        "quality": _quality(tables.get("eval_samples"), checkpoint),
        "stability": _stability(tables),
        "efficiency": _efficiency(tables),
    }
    lines = [(layer, *_line(layer, sentences[layer], diagnosis)) for layer in LAYERS]
    return Verdict(pd.DataFrame(lines, columns=["layer", "word", "sentence"]))


def _line(layer: str, numbers: str, diagnosis: Diagnosis) -> tuple[str, str]:
    own = [f for f in diagnosis.causes if LAYER_OF_CAUSE.get(f.cause, "efficiency") == layer and f.severity != "info"]
    gap = next((gap.sentence for gap in diagnosis.gaps if layer in gap.layers), None)
    if not own and gap is not None:
        return "not measured", f"{gap[0].upper()}{gap[1:]}. {numbers}".strip()
    if not own and not numbers and layer == "efficiency" and PROFILE & set(diagnosis.coverage["tables"]):
        return "good", "The profile shows nothing that holds the run back."
    if not own:
        return ("good", numbers) if numbers else ("not measured", UNMEASURED[layer])
    more = f" (and {len(own) - 1} more below)" if len(own) > 1 else ""
    return WORDS[own[0].severity], f"{own[0].title}{more} {numbers}".strip()


def _quality(samples: pd.DataFrame | None, checkpoint: str | None) -> str:
    order = [] if samples is None else checkpoints_in_order(samples)
    if samples is None or not order or (checkpoint and checkpoint not in order):
        return ""
    summary = quality_summary(samples, checkpoint or order[-1])
    whole = summary[summary["subset"] == ALL_SUBSETS].iloc[0]
    parts = summary[summary["subset"] != ALL_SUBSETS]
    text = f"Loss {whole['loss']:.3f} nats per token, perplexity {whole['perplexity']:.4g} over {len(parts)} subsets."
    if pd.isna(whole["previous_reference"]):
        return f"{text} First evaluated checkpoint, nothing to compare with."
    counts = parts["previous_verdict"].value_counts()
    words = ", ".join(f"{n} {w}" for w, n in counts.items())
    return f"{text} Against the checkpoint before: {whole['previous_change']:+.3f} nats; subsets: {words}."


def _stability(tables: Mapping[str, pd.DataFrame]) -> str:
    if "training_steps" not in tables:
        return ""
    summary = stability_summary(tables["training_steps"], tables.get("parameter_groups"))
    value = summary.set_index("measure")["value"]
    parts = [f"Training loss {value['training loss']:.3f}"] if "training loss" in value else []
    if "gradient norm" in value:
        parts.append(f"gradient norm {value['gradient norm']:.3g}")
    parts.append(f"loss spikes: {value['loss spikes']:.0f}")
    if "steps with overflow" in value:
        parts.append(f"overflow at {value['steps with overflow']:.1%} of the steps")
    return ", ".join(parts) + "."


def _efficiency(tables: Mapping[str, pd.DataFrame]) -> str:
    if "training_steps" not in tables:
        return ""
    summary = efficiency_summary(tables["training_steps"], tables.get("events")).set_index("measure")["value"]
    if "step time, median" not in summary:
        return ""
    parts = [f"{summary['step time, median']:,.0f} ms per step"]
    if "throughput" in summary:
        parts.append(f"{summary['throughput']:,.0f} tokens per s")
    if "waiting for data" in summary:
        parts.append(f"{summary['waiting for data']:.1%} waiting for data")
    return ", ".join(parts) + f", stalled steps: {summary['stalled steps']:.0f}."
