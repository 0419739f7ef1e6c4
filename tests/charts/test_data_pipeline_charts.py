import pandas as pd

from tests.analyses.pipeline_tables import batches, chain, profiled, service
from workbench.analyses.data_pipeline import batch_waits, bottleneck, pipeline_operators, wait_curve
from workbench.analyses.pipeline_rates import Machine, Setting, operator_times
from workbench.analyses.pipeline_tuning import predict
from workbench.charts.data_pipeline import (
    batch_waits_chart,
    operator_times_chart,
    operators_chart,
    predictions_chart,
)

OPS = profiled((0, "Batch", None, 0.0, 0.02, 1), (1, "Map", 0, 0.0, 0.05, 1), (2, "Generator", 1, 1.0, 0.05, 1))
TAKEN = batches([30_000] * 20, step_us=10_000)
SERVICES = chain(service("Generator", 50.0), service("Map", 2000.0, many_workers=2, many_us=1000.0),
                 service("Batch", 10.0, input_rows=8.0))  # fmt: skip


def data(chart):
    return pd.DataFrame([row for rows in chart.to_dict()["datasets"].values() for row in rows])


def test_operators_stand_sources_first_and_the_culprit_is_marked():
    operators = pipeline_operators(OPS)
    drawn = operators_chart(operators, bottleneck(operators, batch_waits(TAKEN)))
    rows = data(drawn)
    assert rows.loc[rows.is_culprit, "name"].unique().tolist() == ["Map"]
    assert "Map holds it back" in str(drawn.to_dict()["title"])
    assert drawn.to_dict()["layer"][0]["encoding"]["y"]["sort"] == ["Generator", "Map", "Batch"]
    assert "1 worker · 0.05 cores" in set(rows.about)


def test_waits_are_in_milliseconds():
    assert set(data(batch_waits_chart(wait_curve(TAKEN))).wait_ms) == {30.0}


def test_predictions_stand_beside_what_was_measured():
    table = predict(SERVICES, {}, Machine(cores=2), [Setting(), Setting(workers={"Map": 2})])
    rows = data(predictions_chart(table.assign(measured_us=[16_500.0, None])))
    assert rows.predicted_ms.tolist() == [16.0, 8.0]
    assert rows.measured_ms.dropna().tolist() == [16.5]
    assert predictions_chart(table).to_dict()  # nothing measured yet


def test_operator_times_name_workers_and_processes():
    times = operator_times(SERVICES, Setting(workers={"Map": 2}))
    rows = data(operator_times_chart(times, batch_us=8000.0, step_us=20_000.0))
    assert {"1 worker", "2 workers"} <= set(rows.side.dropna())
    assert {8.0, 20.0} <= set(rows["at"].dropna())


def test_without_rows_a_chart_says_so():
    assert "nothing" in str(operators_chart(pipeline_operators(OPS.iloc[:0]), pd.DataFrame()).to_dict())
    assert "nothing" in str(batch_waits_chart(wait_curve(TAKEN.iloc[:0])).to_dict())
    assert "nothing" in str(predictions_chart(pd.DataFrame()).to_dict())
