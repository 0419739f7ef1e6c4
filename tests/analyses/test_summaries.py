import pandas as pd
import pytest

from tests.made_run import made_groups, made_samples, made_steps
from workbench.analyses.evaluation import ALL_SUBSETS
from workbench.analyses.summaries import efficiency_summary, quality_summary, stability_summary
from workbench.tables import TRAINING_STEPS

SAMPLES = pd.concat([made_samples("c-1", 1), made_samples("c-2", 2, better=0.3, worse=["code"])])


def test_quality_of_the_first_and_of_a_later_checkpoint():
    first = quality_summary(SAMPLES, "c-1")
    assert first.previous_change.isna().all()
    later = quality_summary(SAMPLES, "c-2").set_index("subset")
    assert later.index[-1] == ALL_SUBSETS
    assert later.previous_change["prose"] == pytest.approx(-0.3, abs=0.02)
    assert later.previous_change["code"] == pytest.approx(-0.3 + 0.2, abs=0.02)
    assert later.best_change.isna().all()  # the best before is the previous one
    assert later.loss_low["prose"] < later.loss["prose"] < later.loss_high["prose"]


def test_quality_leaves_out_what_was_not_measured():
    assert "bits_per_byte" not in quality_summary(SAMPLES.drop(columns="scored_bytes"), "c-2")


def test_stability_and_efficiency_of_made_steps():
    steps = made_steps(200)
    stability = stability_summary(steps, made_groups(steps)).set_index("measure")
    assert stability.value["training loss"] == pytest.approx(2.5 + 3 * 2.718 ** (-175 / 80), abs=0.1)
    assert stability.note["largest gradient / parameter ratio"] == "group embedding, median of 50 steps"
    assert stability.value["steps with overflow"] == 0
    efficiency = efficiency_summary(steps).set_index("measure")
    assert efficiency.value["step time, median"] == pytest.approx(100, rel=0.02)
    assert efficiency.value["throughput"] == pytest.approx(10240, rel=0.02)
    assert efficiency.value["stalled steps"] == 0
    assert "without 2 warm-up or compiling steps" in efficiency.note["step time, median"]


def test_what_is_not_recorded_is_left_out():
    bare = made_steps(60)[["rank_id", "step", "loss"]]
    assert "gradient norm" not in set(stability_summary(bare).measure)
    assert set(efficiency_summary(bare).measure) == {"stalled steps"}
    assert set(efficiency_summary(TRAINING_STEPS.empty()).measure) == {"stalled steps"}
