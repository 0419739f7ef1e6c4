"""Parts of the post-training report: each takes the run's tables, and says what is missing where it cannot show."""

from __future__ import annotations

from typing import Any

import pandas as pd

from workbench.analyses import generated_text, instructions
from workbench.analyses.diversity import diversity
from workbench.analyses.variants import variant_changes
from workbench.charts import post_training as charts
from workbench.findings.diagnosis import Diagnosis, run_tables
from workbench.findings.generation import find_degenerate_output
from workbench.run import Run
from workbench.widgets.sections import Tables, Text, needs

NAMES = ("variant_samples", "generations")
TITLES = {
    "robustness": "What perturbing the context costs",
    "context_length": "Loss with shorter and longer contexts than in training",
}


def tables_of(run: Run, *, checkpoint: str | None = None) -> dict[str, pd.DataFrame]:
    """The tables that the parts use, up to the step of `checkpoint` where one is given."""
    return run_tables(run, NAMES, checkpoint=checkpoint)


@needs("variant_samples")
def variants(tables: Tables, dimension: str) -> Any:
    """Paired changes of the loss in one dimension."""
    samples = tables["variant_samples"]
    if dimension not in set(samples["dimension"]):
        return Text(f"Not evaluated: {dimension}. To have it: workbench post-training RUN --dimensions {dimension}.")
    return charts.variant_chart(variant_changes(samples, dimension), title=TITLES.get(dimension, dimension))


@needs("generations")
def problems(tables: Tables) -> Any:
    """Rates of broken rules per subset and checkpoint."""
    return charts.rates_chart(generated_text.problem_rates(_checked(tables)))


@needs("generations")
def examples(tables: Tables, rule: str, *, count: int = 4) -> Any:
    """Worst examples of one rule."""
    found = generated_text.worst_examples(_checked(tables), rule, count=count)
    return charts.examples_table(found) if len(found) else Text(f"No text breaks the rule {rule!r}.")


@needs("generations")
def different(tables: Tables) -> Any:
    """Distinct-n and self-BLEU."""
    return charts.diversity_table(diversity(_free(tables["generations"])))


@needs("generations")
def followed(tables: Tables) -> Any:
    """Pass rates of instructions that can be checked."""
    checked = instructions.check_instructions(tables["generations"])
    if checked.empty:
        return Text("No generated text has instructions (`constraints`); see docs/post_training.md.")
    return charts.instruction_chart(instructions.instruction_rates(checked))


@needs("generations")
def verdict(tables: Tables) -> Any:
    """What the rule on generated texts finds."""
    found = find_degenerate_output(tables["generations"])
    if not found:
        return Text("No rule is broken more often than the limits allow.", quiet=False)
    coverage: dict[str, Any] = {"ranks": [], "steps": None, "tables": ["generations"], "missing": []}
    return Diagnosis(run="generated texts", coverage=coverage, causes=tuple(found))


def _checked(tables: Tables) -> pd.DataFrame:
    return generated_text.check_generations(tables["generations"])


def _free(texts: pd.DataFrame) -> pd.DataFrame:
    """Texts without instructions: those have one right answer, and need not differ."""
    return texts[texts["constraints"].isna()]
