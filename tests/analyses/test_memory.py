import pandas as pd
import pytest

from tests.memory_rows import timeline
from workbench.analyses.memory import (
    floor_growth,
    memory_curve,
    memory_peaks,
    pipeline_stages,
    stage_peaks,
    step_floors,
    step_starts,
)
from workbench.tables import KERNELS, MEMORY_TIMELINE, SETTINGS

STARTS = pd.DataFrame({"rank_id": 0, "window": 0, "step": [5, 6, 7, 8], "start_ns": [100, 200, 300, 400]})


def test_one_component_of_each_rank_and_its_peaks():
    app = timeline((1, None, 900), component="APP")
    both = timeline((1, 500, 800), (2, 700, 800), component="MindSpore+GE")
    ours = timeline((3, 300, 800), (1, 400, 600), (2, 600, 800))
    rows = pd.concat([app, both, ours])
    assert memory_curve(rows)["time_ns"].tolist() == [1, 2, 3]
    peak = memory_peaks(rows).iloc[0]
    assert (peak["peak_allocated_bytes"], peak["peak_reserved_bytes"], peak["peak_at_ns"]) == (600, 800, 2)
    assert (peak["last_allocated_bytes"], peak["unused_bytes"], peak["unused_share"]) == (300, 200, 0.25)
    assert memory_peaks(MEMORY_TIMELINE.empty()).empty


def test_peaks_need_no_times_and_no_component_names():
    rows = timeline((None, 500, 800)).assign(component=pd.NA)
    assert memory_peaks(rows)["unused_bytes"].tolist() == [300]


def test_floors_and_growth_by_hand():
    rows = timeline((90, 10, 99), (150, 30, 99), (190, 12, 99), (250, 30, 99), (290, 14, 99), (350, 40, 99),
                    (390, 16, 99), (450, 40, 99), (490, 18, 99))  # fmt: skip
    floors = step_floors(rows, STARTS)  # the level that holds at a step's begin counts: 10, 12, 14, 16
    assert floors["floor_bytes"].tolist() == [10, 12, 14, 16]
    assert floors["top_bytes"].tolist() == [30, 30, 40, 40]
    growth = floor_growth(floors).iloc[0]
    assert (growth["growth_bytes_per_step"], growth["rising_steps"], growth["steps"]) == (2, 3, 4)
    assert floor_growth(floors.head(2)).empty
    renamed = step_floors(rows.assign(rank_id=9), STARTS.assign(rank_id=9))
    pd.testing.assert_frame_equal(renamed.drop(columns="rank_id"), floors.drop(columns="rank_id"))


def test_step_starts_are_the_first_tasks():
    rows = {
        "rank_id": 0,
        "window": 0,
        "step": [5, 5, 6, None],
        "start_ns": [7, 3, 9, 1],
        "name": "a",
        "duration_us": 1.0,
    }
    kernels = KERNELS.check(pd.DataFrame(rows).astype({"step": "Int64", "start_ns": "Int64"}))
    assert step_starts(kernels)[["step", "start_ns"]].values.tolist() == [[5, 3], [6, 9]]


def test_stages_of_the_settings():
    names = ["distributed_args.pipeline_model_parallel_size", "profiler_parameters.parallel_strategy"]
    settings = SETTINGS.check(pd.DataFrame({"name": names, "value": ["2", "false"]}))
    assert pipeline_stages(settings, 8) == 2
    assert pipeline_stages(settings, 7) is None
    assert pipeline_stages(settings.iloc[1:], 8) is None
    assert pipeline_stages(None, 8) is None
    peaks = memory_peaks(pd.concat([timeline((1, 10 * (r + 1), 100), rank_id=r) for r in range(4)]))
    staged = stage_peaks(peaks, 2, 4)  # medians of 10, 20 and of 30, 40
    assert staged["peak_allocated_bytes"].tolist() == pytest.approx([15, 35])
    assert staged["ranks"].tolist() == [2, 2]
