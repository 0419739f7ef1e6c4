"""The metric catalogue is complete in itself, fits the tables, and is what docs/metrics.md shows."""

from pathlib import Path

import pytest

from workbench.errors import UnknownParameterError
from workbench.metrics import LAYERS, METRICS, evaluation_title, metric, metrics_page
from workbench.tables import TABLES

PAGE = (Path(__file__).parents[1] / "docs" / "metrics.md").read_text()


@pytest.mark.parametrize("entry", METRICS.values(), ids=lambda m: m.name)
def test_every_metric_points_somewhere_and_comes_from_a_column(entry):
    assert entry.layer in LAYERS
    assert entry.subsystem
    assert entry.normal
    assert entry.table in TABLES
    if entry.table != "evals":
        assert entry.column in TABLES[entry.table].column_names


def test_the_page_is_the_catalogue():
    assert PAGE.split("<!-- catalogue -->\n")[1].split("\n<!-- end of catalogue -->")[0] == metrics_page()


def test_titles_carry_their_unit():
    assert evaluation_title("loss") == "loss (nats per token)"
    assert evaluation_title("perplexity") == "perplexity"
    assert evaluation_title("mean_absolute_error") == "mean_absolute_error"


def test_an_unknown_metric_is_refused_with_the_known_ones():
    with pytest.raises(UnknownParameterError, match="gradient_norm"):
        metric("goodness")
