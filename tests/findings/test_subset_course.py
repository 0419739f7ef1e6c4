import numpy as np
import pandas as pd
import pytest

from tests.analyses.test_subset_course import documents
from workbench.analyses.evaluation import subset_metrics
from workbench.findings.evaluation import find_worse_subsets
from workbench.findings.subset_course import find_subset_drops, subset_drops
from workbench.tables import SETTINGS

STEPS = np.arange(1, 9) * 500
MIX = pd.DataFrame(
    [(0, "fr_web", 0.5), (0, "python_code", 0.3), (0, "wiki", 0.2),
     (2100, "fr_web", 0.86), (2100, "python_code", 0.02), (2100, "wiki", 0.12)],
    columns=["from_step", "source", "weight_share"],
)  # fmt: skip


def series(seed, *, drop=0.03, from_step=2000, n=2000):
    """Sampled scores of four subsets; `python_tests` falls by `drop` per evaluation after `from_step`."""
    random = np.random.default_rng(seed)
    levels = {"french_exam": 0.55, "python_tests": 0.45, "reading": 0.7, "probe": 0.5}
    rows = []
    for subset, level in levels.items():
        size = 80 if subset == "probe" else n
        for step in STEPS:
            p = level + 0.004 * step / 500
            if subset == "python_tests":
                p -= drop * max(0, (step - from_step) / 500)
            rows.append(("imported", step, subset, "score", random.binomial(size, p) / size, size))
    return pd.DataFrame(rows, columns=["kind", "step", "subset", "metric", "value", "n"])


@pytest.mark.parametrize("seed", range(6))
def test_a_cut_source_is_named_with_the_step_of_the_change(seed):
    found = find_subset_drops({"evals": series(seed), "data_mix": MIX})
    assert [(f.cause, f.culprit.subset, f.confidence) for f in found] == [("data_mix_shift", "python_tests", "high")]
    assert found[0].steps.first == 2100
    facts = {e.fact: e for e in found[0].evidence}
    assert facts["weight of source python_code was cut"].value == pytest.approx(0.02)
    assert any(fact.startswith("average over 4 subsets") for fact in facts)
    assert "replay" in found[0].fix


@pytest.mark.parametrize("seed", range(6))
def test_without_a_drop_nothing_is_said_whatever_the_mix_does(seed):
    assert find_subset_drops({"evals": series(seed, drop=0.0), "data_mix": MIX}) == []


def test_a_mix_change_at_another_time_explains_nothing():
    late = MIX.assign(from_step=MIX.from_step.replace(2100, 400))
    found = find_subset_drops({"evals": series(1), "data_mix": late})
    assert [f.cause for f in found] == ["forgetting"]
    assert found[0].steps.first in (2500, 3000, 3500)
    assert [f.cause for f in find_subset_drops({"evals": series(1)})] == ["subset_regression"]


def test_a_raised_source_of_the_subset_is_no_explanation():
    raised = MIX.assign(source=MIX.source.replace({"fr_web": "python_code", "python_code": "fr_web"}))
    found = find_subset_drops({"evals": series(1), "data_mix": raised})
    assert [f.cause for f in found] == ["forgetting"]


def test_other_token_counts_of_the_same_samples_name_the_tokenizer():
    frame = documents(8, shift=[0, 0, 0, 0, 0.4, 0.4, 0.4, 0.4])
    later = (frame.step > 200) & (frame.subset == "code")
    found = find_subset_drops({"eval_samples": frame.assign(scored_tokens=frame.scored_tokens.mask(later, 36.0)
                               , loss_nats=frame.loss_nats.mask(later, frame.loss_nats * 36 / 32))})  # fmt: skip
    assert [(f.cause, f.culprit.subset) for f in found] == [("tokenizer_special_tokens", "code")]
    assert found[0].steps.first == 250


def test_a_drop_of_long_samples_only_names_the_context_length():
    frame = documents(6).assign(length_tokens=lambda f: np.where(f.sample_id.str.endswith("#1"), 256.0, 64.0))
    longer = (frame.subset == "code") & (frame.length_tokens == 256) & (frame.step > 150)
    frame = frame.assign(loss_nats=frame.loss_nats + 32 * 0.5 * longer)
    found = find_subset_drops({"eval_samples": frame})
    assert [(f.cause, f.culprit.subset) for f in found] == [("context_length_shift", "code")]
    assert "256 tokens" in found[0].title


def test_more_unknown_tokens_name_the_tokenizer():
    unknown = [("imported", s, "python_tests", "unknown_share", 0.001 if s <= 2000 else 0.08, pd.NA) for s in STEPS]
    evals = series(2)
    evals = pd.concat([evals, pd.DataFrame(unknown, columns=evals.columns)])
    found = find_subset_drops({"evals": evals})
    assert [f.cause for f in found if f.culprit.subset == "python_tests"] == ["tokenizer_special_tokens"]


def test_a_subset_is_named_once_where_course_and_last_checkpoint_both_tell():
    frame = documents(6, shift=[0, 0, 0, 0.3, 0.3, 0.4]).assign(checkpoint=lambda f: "c-" + f.step.astype(str))
    tables = {"eval_samples": frame, "evals": subset_metrics(frame).assign(kind="checkpoint")}
    assert [f.culprit.subset for f in find_worse_subsets(tables)] == ["code"]
    assert set(subset_drops(tables).kind) == {"checkpoint"}  # samples are better than the scores made of them


def used_samples(onset, *, steps=400, batch=16, seed=0):
    """Samples of three subsets in even shares; `code` is not drawn any more from step `onset` on."""
    random = np.random.default_rng(seed)
    names = np.array(["code", "prose", "law"])
    drawn = names[random.integers(0, 3, (steps, batch))]
    late = np.arange(1, steps + 1)[:, None] >= onset
    drawn = np.where(late & (drawn == "code"), names[random.integers(1, 3, (steps, batch))], drawn)
    step = np.repeat(np.arange(1, steps + 1), batch)
    return pd.DataFrame({"rank_id": 0, "step": step, "position": np.tile(np.arange(batch), steps),
                         "sample": random.integers(0, 10**6, steps * batch), "subset": drawn.ravel()})  # fmt: skip


@pytest.mark.parametrize("seed", range(8))  # in some of them the other subsets' drifts begin a window later
def test_the_samples_that_were_used_explain_a_drop_as_a_plan_does(seed):
    frame = documents(8, shift=[0, 0, 0, 0, 0.1, 0.3, 0.4, 0.5], seed=seed)
    found = find_subset_drops({"eval_samples": frame, "sample_ids": used_samples(201, seed=seed)})
    assert [(f.cause, f.culprit.subset, f.confidence) for f in found] == [("data_mix_shift", "code", "high")]
    assert abs(found[0].steps.first - 201) <= 25  # windows of 12 steps
    assert any(e.table == "sample_ids" for e in found[0].evidence)


def test_steady_samples_explain_nothing():
    frame = documents(8, shift=[0, 0, 0, 0, 0.1, 0.3, 0.4, 0.5])
    found = find_subset_drops({"eval_samples": frame, "sample_ids": used_samples(10_000)})
    assert [f.cause for f in found] == ["subset_regression"]


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("seq_length", "context_length_shift"), ("model.max_position_embeddings", "context_length_shift"),
        ("tokenizer", "tokenizer_special_tokens"), ("add_eos_token", "tokenizer_special_tokens"),
        ("tokens_per_batch", "subset_regression"), ("learning_rate", "subset_regression"),
    ],
)  # fmt: skip
def test_a_changed_setting_of_text_or_length_explains_a_drop(name, cause):
    settings = SETTINGS.check(pd.DataFrame(
        [(f"{run}.{item}", value, "x.csv") for run, value in (("before", "a"), ("after", "b")) for item in (name, "c")]
        + [("before.same", "1", "x.csv"), ("after.same", "1", "x.csv")], columns=["name", "value", "source"],
    ))  # fmt: skip
    (found,) = find_subset_drops({"evals": series(1), "settings": settings})
    assert (found.cause, found.confidence) == (cause, "medium")
    facts = [(e.fact, e.value) for e in found.evidence]
    assert ((f"changed: {name}", "a to b") in facts) == (cause != "subset_regression")
