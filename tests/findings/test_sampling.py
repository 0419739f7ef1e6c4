"""Rules on data sets and samplings: seeded faults are named with their place, healthy data stay silent."""

import random

import pandas as pd
import pytest

from workbench.findings.data_health import find_bad_samples
from workbench.findings.sampling import find_mix_switch, find_sampling_faults
from workbench.readers.kinds import FileContext
from workbench.readers.series import read_series
from workbench.tables import DATA_MIX, DATA_SAMPLES, SETTINGS

pytest.importorskip("mindspore")
from benchmarks.data_faults import SUBSETS, cases, cut_at, judged, mixed_ids, same_on_ranks


@pytest.mark.mindspore
@pytest.mark.parametrize("seed", [101, 102, 103])
def test_every_seeded_fault_is_found_and_healthy_data_stay_silent(seed):
    rows = [judged(case, seed) for number, case in enumerate(cases(seed)) if number % 3 == seed % 3]  # each case once
    assert [r for r in rows if not r["right"]] == []


def mix(rows):
    return DATA_MIX.check(pd.DataFrame(rows, columns=["from_step", "source", "weight_share"]))


def test_a_planned_change_is_no_drift():
    ids = mixed_ids(random.Random(0), cut_at(0.5, "code", 0.3))
    assert [f.cause for f in find_sampling_faults({"sample_ids": ids})] == ["data_mix_shift"]
    plan = mix([(step, name, weight) for step, weights in ((0, SUBSETS), (400, SUBSETS | {"code": 0.09}))
                for name, weight in weights.items()])  # fmt: skip
    assert find_sampling_faults({"sample_ids": ids, "data_mix": plan}) == []
    other_way = mix([(0, "code", 0.3), (0, "math", 0.7), (400, "code", 0.5), (400, "math", 0.5)])
    assert len(find_sampling_faults({"sample_ids": ids, "data_mix": other_way})) == 1


def test_the_drift_names_subset_and_onset():
    found = find_sampling_faults({"sample_ids": mixed_ids(random.Random(1), cut_at(0.5, "code", 0.3))})[0]
    assert found.culprit.subset == "code"
    assert found.steps.first == pytest.approx(400, abs=50)
    assert found.sub_cause == "drift"


def test_a_file_that_was_shuffled_before_is_no_fault_and_hides_no_drift():
    ids = mixed_ids(random.Random(3), cut_at(0.5, "code", 0.0))
    in_order = ids.assign(sample=range(len(ids)))  # places in the file, read one after the other
    found = {f.cause: f for f in find_sampling_faults({"sample_ids": in_order})}
    assert found["small_shuffle_buffer"].severity == "info"
    assert found["data_mix_shift"].severity != "info"


def test_a_switch_of_the_planned_mix_is_told():
    switched = mix([(0, "web", 0.6), (0, "code", 0.4), (500, "web", 0.2), (500, "code", 0.8)])
    found = find_mix_switch(switched)[0]
    assert (found.culprit.subset, found.steps.first) == ("web", 500)
    assert "40% of the samples come from other sources" in found.title
    slow = mix([(s, n, w) for s, a in ((0, 0.6), (100, 0.55), (200, 0.5)) for n, w in (("web", a), ("code", 1 - a))])
    assert find_mix_switch(slow) == []
    assert find_mix_switch(switched[switched.from_step == 0]) == []


def test_the_public_case_shows_its_switch(shared_dir):
    path = shared_dir / "cases/09-eval-subset-after-mix-change/data_mix.csv"
    found = find_mix_switch(read_series(path, FileContext())["data_mix"].table)
    assert [(f.culprit.subset, f.steps.first) for f in found] == [("web_en", 6001)]


def test_ranks_of_one_model_share_their_samples():
    ids = same_on_ranks(random.Random(0))
    assert [f.sub_cause for f in find_sampling_faults({"sample_ids": ids})] == ["same_samples_on_ranks"]
    settings = SETTINGS.check(pd.DataFrame({"name": ["config.parallel.model_parallel"], "value": ["2"]}))
    assert find_sampling_faults({"sample_ids": ids, "settings": settings}) == []
    alone = settings.assign(value="1")
    assert len(find_sampling_faults({"sample_ids": ids, "settings": alone})) == 1


def test_tokenizer_coverage_is_told_per_subset():
    samples = DATA_SAMPLES.check(
        pd.DataFrame({"dataset": "d", "sample": range(60), "subset": ["en"] * 30 + ["zh"] * 30, "size_bytes": 100.0,
                      "tokens": 25.0, "unknown_tokens": 0.0, "byte_tokens": [0.0] * 30 + [15.0] * 30, "is_empty": False,
                      "digest": [str(n) for n in range(60)]})
    )  # fmt: skip
    found = find_bad_samples(samples)
    assert [(f.cause, f.culprit.subset) for f in found] == [("tokenizer_coverage", "zh")]
    assert "60.0% single bytes" in found[0].title
    assert find_bad_samples(samples.iloc[:30]) == []
