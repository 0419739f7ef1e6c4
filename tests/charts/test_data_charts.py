"""The charts on training data are drawn from their tables, and say so where there is nothing to draw."""

import numpy as np
import pandas as pd
import vl_convert as vlc

from workbench.analyses.data_health import batch_sizes, subset_health
from workbench.analyses.lengths import length_histogram, truncation
from workbench.analyses.sampling_mix import sampling_shares
from workbench.analyses.shuffle import shuffle_path
from workbench.charts.data_health import batch_size_chart, health_chart, length_chart, tokens_chart
from workbench.charts.sampling import sampling_share_chart, shuffle_chart
from workbench.tables import DATA_SAMPLES, SAMPLE_IDS, TRAINING_STEPS


def svg(chart):
    return vlc.vegalite_to_svg(chart.to_dict())


def samples(count=300, subsets=12):
    generator = np.random.default_rng(0)
    return DATA_SAMPLES.check(
        pd.DataFrame(
            {
                "dataset": "d",
                "sample": range(count),
                "subset": [f"subset {n % subsets}" for n in range(count)],
                "tokens": generator.integers(1, 3000, count).astype(float),
                "size_bytes": 100.0,
                "is_empty": False,
                "digest": [str(n // 2) for n in range(count)],
                "training_length_tokens": 1024.0,
            }
        )
    )


def test_a_data_set_is_drawn():
    table = samples()
    lengths = svg(length_chart(length_histogram(table), 1024))
    assert "red: the training length of 1,024 tokens" in lengths
    assert "others" in lengths
    assert "cut off" in svg(tokens_chart(truncation(table)))
    ailments = svg(health_chart(subset_health(table)))
    assert "exact copies" in ailments
    assert "(all)" in ailments
    steps = TRAINING_STEPS.check(pd.DataFrame({"rank_id": 0, "step": range(9), "samples": [8.0] * 8 + [3.0]}))
    assert "samples per batch and rank" in svg(batch_size_chart(batch_sizes(steps)))


def test_a_sampling_is_drawn():
    place = np.arange(4000)
    ids = SAMPLE_IDS.check(
        pd.DataFrame({"rank_id": 0, "step": place // 10 + 1, "position": place % 10, "sample": place,
                      "subset": np.where(place % 3, "code", "math")})
    )  # fmt: skip
    assert "lines: neighbours stay together" in svg(shuffle_chart(shuffle_path(ids)))
    drawn = svg(sampling_share_chart(sampling_shares(ids), {"code": 2, "math": 1}, 120))
    assert "red: drifts from step 120" in drawn
    assert "dashed: intended" in drawn


def test_nothing_to_draw():
    none = samples().iloc[:0]
    ids = SAMPLE_IDS.empty()
    charts = [
        length_chart(length_histogram(none)), tokens_chart(truncation(none)), health_chart(subset_health(none)),
        batch_size_chart(batch_sizes(TRAINING_STEPS.empty())), shuffle_chart(shuffle_path(ids)),
        sampling_share_chart(sampling_shares(ids)),
    ]  # fmt: skip
    assert all(svg(chart) for chart in charts)
