import importlib.util
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.analyses.statistics import ratio_change
from workbench.analyses.subset_sampling import draw_samples, visible_changes
from workbench.errors import MissingColumnsError, UnknownParameterError


def benchmark(name):
    path = Path(__file__).parents[2] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def pool(documents=30, each=10):
    rows = [
        (s, f"{s}{d}#{k}", f"{s}{d}", 10.0 * (k + 1) + d / 100)
        for s in ("code", "math") for d in range(documents) for k in range(each)
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["subset", "sample_id", "document_id", "length_tokens"])


def test_a_draw_has_every_length_quarter_and_many_documents():
    drawn = draw_samples(pool(), 40, seed=3)
    assert drawn.subset.value_counts().to_dict() == {"code": 40, "math": 40}
    code = drawn[drawn.subset == "code"]
    rank = pool().query("subset == 'code'").length_tokens.rank(method="first")
    assert (rank[code.index] // (300 / 4 + 0.01)).value_counts().to_dict() == {0: 10, 1: 10, 2: 10, 3: 10}
    assert code.document_id.nunique() >= 20


def test_the_draw_depends_on_the_seed_alone():
    first = draw_samples(pool(), 20, seed=1)
    again = draw_samples(pool().sample(frac=1, random_state=5), 20, seed=1)
    assert set(first.sample_id) == set(again.sample_id)
    assert set(first.sample_id) != set(draw_samples(pool(), 20, seed=2).sample_id)


def test_a_small_subset_is_taken_whole_and_bad_requests_are_refused():
    assert len(draw_samples(pool(documents=1, each=3), 10)) == 6
    with pytest.raises(UnknownParameterError, match="at least one"):
        draw_samples(pool(), 0)
    with pytest.raises(MissingColumnsError, match="sample_id"):
        draw_samples(pd.DataFrame({"subset": ["a"]}), 1)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 90), st.integers(0, 5))
def test_a_draw_has_the_size_asked_for_without_repeats(size, seed):
    drawn = draw_samples(pool(documents=7, each=4), size, seed=seed)
    assert (drawn.groupby("subset").size() == min(size, 28)).all()
    assert drawn.sample_id.is_unique


def test_visible_change_falls_with_the_number_of_samples_and_matches_by_hand():
    samples = benchmark("eval_statistics").scored_twice(
        np.random.default_rng(0), benchmark("eval_statistics").Layout(100, 1, 0.0)
    )
    plan = visible_changes(samples, "a", "b", samples=(100, 400)).set_index("n")
    tokens = samples.scored_tokens[:100].to_numpy()
    gain = (samples.loss_nats[100:].to_numpy() - samples.loss_nats[:100].to_numpy()) / tokens
    weight = tokens / tokens.mean()
    error = np.sqrt(np.var(weight * (gain - np.average(gain, weights=weight)), ddof=1) / 100)
    assert plan.visible_change[100] == pytest.approx((1.984217 + 0.845361) * error, rel=1e-4)  # t, 99 degrees
    assert plan.visible_change[400] == pytest.approx(plan.visible_change[100] / 2, rel=0.02)
    assert plan.sentence[400].startswith("With 400 samples of 400 documents a change of 0.0")
    with pytest.raises(UnknownParameterError, match="no checkpoint"):
        visible_changes(samples, "a", "c")


def test_the_test_keeps_its_level_under_clusters_where_the_naive_one_does_not():
    module = benchmark("eval_statistics")
    rates = module.false_alarms(module.Layout(30, 7, 0.8), 200)
    assert rates["ours"] <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)
    assert rates["naive"] > 0.25


def brute_force(before, after, tokens, documents):
    """Leave out each document in turn, by loops."""

    def change(rows):
        return sum(after[i] - before[i] for i in rows) / sum(tokens[i] for i in rows)

    every = range(len(tokens))
    names = sorted(set(documents))
    full = change(every)
    without = [change([i for i in every if documents[i] != name]) for name in names]
    return full, ((len(names) - 1) / len(names) * sum((w - full) ** 2 for w in without)) ** 0.5


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0, 9), st.integers(1, 50), st.integers(0, 4)), min_size=3))
def test_the_paired_test_agrees_with_brute_force(rows):
    before, after, tokens, documents = (list(c) for c in zip(*rows, strict=True))
    if len(set(documents)) < 2:
        return
    got = ratio_change((before, tokens), (after, tokens), documents)
    value, error = brute_force(before, after, tokens, documents)
    assert got.value == pytest.approx(value, abs=1e-9)
    assert got.standard_error == pytest.approx(error, rel=1e-6, abs=1e-9)
