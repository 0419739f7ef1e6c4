"""The scaling charts are drawn, with and without a forecast."""

import pandas as pd
import vl_convert as vlc

from workbench.analyses.scaling import scaling_efficiency, scaling_forecast
from workbench.charts.scaling import scaling_loss_chart, speed_up_chart


def test_charts_of_the_sample(data_samples):
    points = pd.read_csv(data_samples / "scaling" / "points.csv")
    efficiency = scaling_efficiency(points)
    chart = speed_up_chart(efficiency, scaling_forecast(points, [128, 256]))
    assert "bends at 64 devices" in vlc.vegalite_to_svg(chart.to_dict())
    loss = scaling_loss_chart(efficiency)
    assert "late ranks" in vlc.vegalite_to_svg(loss.to_dict())


def test_nothing_to_draw():
    efficiency = scaling_efficiency(pd.DataFrame({"devices": [8], "work_per_step": [8.0], "step_us": [100.0]}))
    assert "nothing is lost" in str(scaling_loss_chart(efficiency).to_dict())
    assert "no runs" in str(speed_up_chart(efficiency.iloc[:0]).to_dict())
    assert speed_up_chart(efficiency).to_dict()
