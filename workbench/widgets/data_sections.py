"""Parts of the notebook on training data: each takes the tables, and says what is missing where it shows nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pandas as pd

from workbench.analyses import data_health, lengths, shuffle
from workbench.analyses.sampling_mix import intended_weights, mix_drift, overall_shares, sampling_shares
from workbench.charts import data_health as charts
from workbench.charts.sampling import sampling_share_chart, shuffle_chart
from workbench.findings.diagnosis import run_tables
from workbench.findings.sampling import find_mix_drift
from workbench.findings.verdict import data_verdict
from workbench.probes.data_set import probe_data_set
from workbench.run import open_run
from workbench.widgets.sections import Tables, Text, needs

NAMES = ("data_samples", "sample_ids", "data_mix", "settings", "training_steps")
ROUNDED = 3


def tables_of(
    data_path: str | os.PathLike[str] | None,
    run_path: str | os.PathLike[str] | None,
    *,
    tokenizer: object | None = None,
    training_length: int | None = None,
    limit: int | None = None,
) -> dict[str, pd.DataFrame]:
    """The tables that the parts use: of the run, and of the data set, which is looked at now.

    Args:
        data_path: the data set; None takes what the run has kept of it.
        run_path: the run; None for none.
        tokenizer: of the data set, see `probe_data_set`.
        training_length: tokens that training keeps of a sample.
        limit: look at the first so many samples only.
    """
    tables = run_tables(open_run(run_path, quiet=True), NAMES) if run_path else {}
    if not data_path:
        return tables
    samples = probe_data_set(
        data_path, tokenizer=tokenizer, training_length=training_length, limit=limit, show_progress=False
    )
    return tables | {"data_samples": samples}


# the data set
@needs("data_samples")
def ailments(tables: Tables) -> Any:
    """What ails each subset, as a chart."""
    return charts.health_chart(data_health.subset_health(tables["data_samples"]))


@needs("data_samples")
def dropped(tables: Tables) -> Any:
    """Samples that training never sees, by reason."""
    found = data_health.drop_counts(tables["data_samples"])
    return Text("Every sample can be used.") if found.empty else found.round(ROUNDED)


@needs("data_samples")
def lengths_of_samples(tables: Tables) -> Any:
    """Samples per length, with the training length where it is known."""
    return charts.length_chart(lengths.length_histogram(tables["data_samples"]), _training_length(tables))


@needs("data_samples", "tokens")
def tokens(tables: Tables) -> Any:
    """Tokens per subset, those that are cut off apart."""
    return charts.tokens_chart(lengths.truncation(tables["data_samples"]))


@needs("data_samples", "tokens")
def cut_off(tables: Tables) -> Any:
    """What the training length cuts off, per subset, in numbers."""
    found = lengths.truncation(tables["data_samples"])
    return Text("No training length is known, so nothing is cut.") if found.empty else found.round(ROUNDED)


@needs("data_samples", "tokens")
def policies(tables: Tables, *, batch_size: int = 8) -> Any:
    """Tokens kept and padding wasted by truncating, by windows and by buckets; overlap and buckets in powers of two."""
    limit = _training_length(tables)
    if limit is None:
        return Text("No training length is known, so nothing is cut.")
    length = int(limit)
    counts = lengths.usable_samples(tables["data_samples"])["tokens"].dropna().astype("int64").to_numpy()
    edges = [max(1, length // 8), max(1, length // 4), max(1, length // 2)]
    found = lengths.length_policies(
        counts, training_length=length, overlap=length // 8, boundaries=edges, batch_size=batch_size
    )
    return found.round(ROUNDED)


@needs("data_samples", "process_us")
def cost(tables: Tables) -> Any:
    """Time to process a sample, per subset."""
    return data_health.process_times(tables["data_samples"]).round(1)


@needs("data_samples")
def verdict(tables: Tables) -> Any:
    """What ails the data set, ranked."""
    return data_verdict(tables["data_samples"])


# what training made of it
@needs("sample_ids")
def order(tables: Tables) -> Any:
    """Where samples stand in the data set over their place in training."""
    return shuffle_chart(shuffle.shuffle_path(tables["sample_ids"]))


@needs("sample_ids")
def shuffled(tables: Tables) -> Any:
    """How well each rank and epoch was shuffled."""
    return shuffle.shuffle_summary(tables["sample_ids"]).round(ROUNDED)


@needs("sample_ids")
def repeats(tables: Tables) -> Any:
    """Samples that come again soon, or on several ranks in the same step."""
    return shuffle.close_repeats(tables["sample_ids"]).round(ROUNDED + 1)


@needs("sample_ids", "subset")
def mix(tables: Tables) -> Any:
    """Share of each subset over the steps, with the intended shares and the onset of a drift."""
    ids, intended = tables["sample_ids"], _intended(tables)
    drifts = [f for f in find_mix_drift(ids, intended, tables.get("data_mix")) if f.sub_cause == "drift"]
    return sampling_share_chart(sampling_shares(ids), intended, drifts[0].steps.first if drifts else None)


@needs("sample_ids", "subset")
def drift(tables: Tables) -> Any:
    """Change of each subset's share over training, with its onset."""
    found = mix_drift(sampling_shares(tables["sample_ids"]))
    return Text("Too few samples to see a course.") if found.empty else found.round(ROUNDED + 1)


@needs("sample_ids", "subset")
def shares(tables: Tables) -> Any:
    """Share of each subset over the whole training, against the intended one."""
    return overall_shares(tables["sample_ids"], _intended(tables)).round(ROUNDED)


@needs("training_steps", "samples")
def batches(tables: Tables) -> Any:
    """Steps per batch size."""
    return charts.batch_size_chart(data_health.batch_sizes(tables["training_steps"]))


def _training_length(tables: Tables) -> float | None:
    known = tables["data_samples"]["training_length_tokens"].dropna()
    return float(known.iloc[0]) if len(known) else None


def _intended(tables: Tables) -> Mapping[str, float] | None:
    return intended_weights(tables.get("settings"), tables.get("data_mix"))
