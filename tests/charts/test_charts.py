"""Every chart draws: on a healthy run, a faulty one, several ranks, and frames without rows."""

import os
import re

import altair as alt
import numpy as np
import pandas as pd
import pytest
import vl_convert

from tests.made_run import made_groups, made_samples, made_steps
from workbench.analyses import curves, evaluation, step_time, training
from workbench.analyses.downsample import downsample
from workbench.charts import evaluation as evaluation_charts
from workbench.charts import theme
from workbench.charts import training as training_charts
from workbench.errors import UnknownParameterError
from workbench.tables import PARAMETER_GROUPS, TRAINING_STEPS

CURVES = ["loss", "gradient_norm", "host_memory_bytes"]


def training_chart_values(steps, groups):
    job = downsample(training.job_steps(steps), CURVES)
    return {
        "loss": training_charts.loss_chart(job),
        "gradient_norm": training_charts.gradient_norm_chart(job),
        "learning_rate": training_charts.learning_rate_chart(job),
        "memory": training_charts.memory_chart(job),
        "ratios": training_charts.group_ratio_chart(curves.group_ratio_curve(groups)),
        "step_time": training_charts.step_time_chart(step_time.timed_steps(steps), step_time.step_outliers(steps)),
        "histogram": training_charts.step_time_histogram(curves.step_time_histogram(steps)),
        "shares": training_charts.time_shares_chart(step_time.time_shares(steps)),
        "tokens": training_charts.tokens_chart(curves.throughput_curve(steps)),
    }


def faulty():
    steps = made_steps(300)
    steps.loc[200, ["loss", "gradient_norm"]] = np.nan, np.inf
    steps.loc[250, "step_us"] = 1e6
    return steps.assign(loss_finite=steps.loss.notna(), overflow=steps.step == 201)


RUNS = {
    "healthy": made_steps(300),
    "faulty": faulty(),
    "eight ranks": pd.concat([made_steps(60, rank_id=r) for r in range(8)]),
    "no rows": TRAINING_STEPS.empty(),
    "nothing but loss": made_steps(60)[["rank_id", "step", "loss"]],
}


def test_a_log_axis_has_ticks_also_within_one_decade():
    wide = theme.log_axis(pd.Series([3.0, 30.0])).to_dict()  # 5, 10 and 20 are in view
    assert {5, 10, 20} <= set(wide["values"])
    assert "values" not in theme.log_axis(pd.Series([27.0, 33.7])).to_dict()  # none is
    steps = made_steps(60, step_us=[27e6 + 1e5 * n for n in range(60)], compiled=False)
    chart = training_charts.step_time_chart(step_time.timed_steps(steps), step_time.step_outliers(steps))
    assert re.search(r">3[0-2][,.]?\d*</text>", vl_convert.vegalite_to_svg(chart.to_dict()))


@pytest.mark.parametrize("name", RUNS)
def test_training_charts_draw_without_a_warning(name, recwarn):
    steps = RUNS[name]
    groups = made_groups(steps) if "gradient_norm" in steps and len(steps) else PARAMETER_GROUPS.empty()
    theme.enable_offline("static")
    for chart in training_chart_values(steps, groups).values():
        svg = vl_convert.vegalite_to_svg(chart.to_dict())
        assert svg.startswith("<svg")
        assert not re.search(r"e\+?30\d|NaN|Infinity|undefined", svg)
    assert not [w for w in recwarn if "altair" in str(w.filename)]


def rows_of(chart):
    return [row for rows in chart.to_dict()["datasets"].values() for row in rows]


def test_a_nan_loss_and_an_overflow_are_marked():
    charts = training_chart_values(faulty(), PARAMETER_GROUPS.empty())
    assert {"step": 201} in rows_of(charts["loss"])
    assert "not a number at 1" in charts["loss"].to_dict()["title"]["subtitle"]
    assert {"step": 201} in rows_of(charts["gradient_norm"])


def test_stalls_say_what_they_cost():
    subtitle = training_chart_values(faulty(), PARAMETER_GROUPS.empty())["step_time"].to_dict()["title"]["subtitle"]
    assert subtitle.startswith("callbacks included; stalled steps: 1, 0.90 s lost")


def test_many_groups_become_a_heat_map():
    ratios = pd.DataFrame([(s, f"blocks.{g}", 0.01 * (g + 1)) for s in (1, 2) for g in range(30)],
                          columns=["step", "group", "gradient_parameter_ratio"])  # fmt: skip
    assert training_charts.group_ratio_chart(ratios).to_dict()["mark"]["type"] == "rect"


def test_evaluation_charts():
    samples = pd.concat([made_samples("c-1", 1), made_samples("c-2", 2, better=0.1, worse=["code"])])
    metrics = evaluation.subset_metrics(samples)
    chart = evaluation_charts.subset_chart(metrics, "perplexity", highlight="c-2")
    assert "95% interval" in chart.to_dict()["title"]["subtitle"]
    assert "长文本" in vl_convert.vegalite_to_svg(chart.to_dict())
    changes = evaluation_charts.changes_chart(evaluation.changes_from_references(samples, "c-2"))
    assert {row["verdict"] for row in rows_of(changes)} == {"better", "worse"}
    assert vl_convert.vegalite_to_svg(changes.to_dict()).startswith("<svg")
    with pytest.raises(UnknownParameterError, match="perplexity"):
        evaluation_charts.subset_chart(metrics, "perplexty")


def test_target_follows_argument_variable_and_server(monkeypatch):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    monkeypatch.delenv(theme.TARGET_VARIABLE, raising=False)
    assert theme.enable_offline() == "static"
    monkeypatch.setenv("JPY_SESSION_NAME", "start.ipynb")
    assert theme.enable_offline() == "lab"
    monkeypatch.setenv(theme.TARGET_VARIABLE, "static")
    assert theme.enable_offline() == "static"
    with pytest.raises(UnknownParameterError, match="colab"):
        theme.enable_offline("colab")
    assert os.environ[theme.TARGET_VARIABLE] == "static"


def test_a_static_chart_is_a_picture_beside_its_description():
    theme.enable_offline("static")
    bundle = alt.Chart(pd.DataFrame({"x": [1]})).mark_point().encode(x="x:Q")._repr_mimebundle_()
    assert set(bundle) >= {"image/svg+xml", "application/vnd.vegalite.v6+json"}
