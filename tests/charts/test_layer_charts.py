"""Charts of layers: what they show of the packaged sample, and few marks for many layers."""

import pandas as pd
import pytest

import workbench as wb
from workbench.analyses import layer_statistics as layers
from workbench.charts import layers as charts


@pytest.fixture(scope="module")
def table(data_samples):
    return wb.open_run(data_samples / "layer_run", quiet=True).table("layer_statistics")


def test_the_damaged_layer_is_the_darkest_row(table):
    spec = charts.layer_heatmap(layers.layer_course(table)).to_dict()
    cells = pd.DataFrame(next(iter(spec["datasets"].values())))
    late = cells[cells["step"] >= 110]
    assert late.loc[late["shown"].idxmax(), "layer"] == "blocks.2.mlp_out"
    assert spec["encoding"]["y"]["sort"][0] == "blocks.0.attention_norm"  # in the order of the network


@pytest.mark.parametrize("measure", layers.MEASURES)
def test_every_measure_has_a_chart(table, measure):
    course = layers.layer_course(table, measure=measure)
    assert charts.layer_heatmap(course, measure=measure).to_dict()
    assert charts.layer_curves(course, ["norm"], measure=measure).to_dict()


def test_positions(table):
    spec = charts.position_heatmap(layers.position_profile(table)).to_dict()
    assert spec["encoding"]["x"]["sort"][:2] == ["0–7", "8–15"]


def test_hundreds_of_layers_keep_those_that_change_most():
    rows = [(0, step, f"layer {k}", k, 0.0, 1.0 + (k == 300) * (step > 30), 1.0, 0.0)
            for step in range(1, 61) for k in range(400)]  # fmt: skip
    columns = ["rank_id", "step", "layer", "layer_index", "mean", "spread", "max_abs", "zero_share"]
    course = layers.layer_course(pd.DataFrame(rows, columns=columns))
    spec = charts.layer_heatmap(course).to_dict()
    cells = pd.DataFrame(next(iter(spec["datasets"].values())))
    assert len(cells) <= charts.CELLS_MOST
    assert "layer 300" in set(cells["layer"])


def test_nothing_recorded_says_so():
    empty = layers.layer_course(
        pd.DataFrame({"rank_id": [], "step": [], "layer": []}).astype({"rank_id": "int64", "step": "int64"})
    )
    for chart in (charts.layer_heatmap(empty), charts.layer_curves(empty, []), charts.position_heatmap(empty)):
        assert "nothing" in str(chart.to_dict()) or "no ranges" in str(chart.to_dict())
