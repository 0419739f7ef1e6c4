"""Parts of the layer notebook: each takes the run's tables, and says what is missing where it cannot show anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from workbench.analyses import layer_statistics as layers
from workbench.charts import layers as charts
from workbench.findings.diagnosis import Diagnosis, run_tables
from workbench.findings.layers import find_layer_drift, find_position_drift
from workbench.run import Run
from workbench.widgets.sections import Tables, Text, needs

NAMES = ("layer_statistics",)
SHOWN_LAYERS = 6


def tables_of(run: Run) -> dict[str, pd.DataFrame]:
    """The tables that the parts use."""
    return run_tables(run, NAMES)


@needs("layer_statistics")
def heatmap(tables: Tables, *, measure: str = "spread") -> Any:
    """Layer by step: what changed, and when."""
    return charts.layer_heatmap(layers.layer_course(tables["layer_statistics"], measure=measure), measure=measure)


@needs("layer_statistics")
def curves(tables: Tables, names: Sequence[str] | None = None, *, measure: str = "spread") -> Any:
    """Values of the named layers; by default those that changed most, or drifted."""
    course = layers.layer_course(tables["layer_statistics"], measure=measure)
    drifting = layers.layer_drift(tables["layer_statistics"])["layer"].dropna().drop_duplicates().tolist()
    changed = course.groupby("layer")["change"].agg(lambda c: c.abs().max()).sort_values(ascending=False).index.tolist()
    chosen = list(names) if names else list(dict.fromkeys([*drifting, *changed]))[:SHOWN_LAYERS]
    return charts.layer_curves(course, chosen, measure=measure)


@needs("layer_statistics")
def positions(tables: Tables, *, step: int | None = None) -> Any:
    """Layer by token position."""
    return charts.position_heatmap(layers.position_profile(tables["layer_statistics"], step=step))


@needs("layer_statistics")
def verdict(tables: Tables) -> Any:
    """What the rules on layers find."""
    table = tables["layer_statistics"]
    found = [*find_layer_drift(table), *find_position_drift(table)]
    records = int(table["step"].nunique())
    if not found:
        few = records < layers.FEWEST_RECORDS
        words = f"{records} records are too few to tell drift ({layers.FEWEST_RECORDS} needed)." if few else (
            f"No layer departs from its kind in {records} records of {table['layer'].nunique()} layers."
        )  # fmt: skip
        return Text(words, quiet=few)
    steps = [int(table["step"].min()), int(table["step"].max())]
    ranks = sorted(int(r) for r in table["rank_id"].unique())
    coverage = {"ranks": ranks, "steps": steps, "tables": ["layer_statistics"], "missing": []}
    return Diagnosis(run="layers", coverage=coverage, causes=tuple(found))
