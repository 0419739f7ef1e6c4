import numpy as np
import pandas as pd
import pytest

from tests.analyses.test_subset_sampling import benchmark
from tests.made_run import made_samples, made_steps
from workbench.analyses.checkpoint_choice import gradient_state, rank_checkpoints
from workbench.analyses.retention import retention_plan
from workbench.errors import MissingTableError, UnknownParameterError
from workbench.tables import EVAL_SAMPLES, TRAINING_STEPS


def history(*parts):
    return pd.concat([made_samples(f"c-{i}", 100 * i, **part) for i, part in enumerate(parts, 1)])


def test_scores_by_hand():
    columns = ["checkpoint", "step", "subset", "sample_id", "document_id", "scored_tokens", "loss_nats"]
    rows = [
        (checkpoint, step, subset, f"{subset}{d}", f"{subset}{d}", 1.0, loss)
        for checkpoint, step, losses in (("a", 1, (2.0, 3.0)), ("b", 2, (1.0, 3.2)))
        for subset, loss in zip(("code", "math"), losses, strict=True)
        for d in range(3)
    ]
    ranked = rank_checkpoints(pd.DataFrame(rows, columns=columns)).set_index("checkpoint")
    assert ranked.mean_loss.to_dict() == pytest.approx({"a": 2.5, "b": 2.1})
    assert ranked.worst_subset_excess.to_dict() == pytest.approx({"a": 1.0, "b": 0.2})
    assert ranked.score.to_dict() == pytest.approx({"a": 2.5 + 0.5 * 1.0, "b": 2.1 + 0.5 * 0.2})
    assert ranked.recommended.to_dict() == {"a": False, "b": True}
    weighted = rank_checkpoints(pd.DataFrame(rows, columns=columns), weights={"math": 1.0}).set_index("checkpoint")
    assert weighted.mean_loss.to_dict() == pytest.approx({"a": 3.0, "b": 3.2})


def test_a_mean_bought_with_one_subset_is_not_the_best():
    paid = history({}, {"better": 0.1}, {"better": 0.14})
    paid.loc[(paid.checkpoint == "c-3") & (paid.subset == "code"), "loss_nats"] += 64 * 0.12
    ranked = rank_checkpoints(paid).set_index("checkpoint")
    assert ranked.mean_loss.idxmin() == "c-2" or ranked.score.idxmin() == "c-2"
    assert ranked.recommended.idxmax() == "c-2"
    assert ranked.worst_subset["c-3"] == "code"


def test_equal_checkpoints_share_the_set_and_a_restless_one_is_not_recommended():
    equal = history({"better": 0.1}, {"better": 0.1}, {"better": 0.1})
    steps = made_steps(300, seed=3)
    norm = steps["gradient_norm"].where(steps["step"] <= 260, 6.0)
    ranked = rank_checkpoints(equal, steps.assign(gradient_norm=norm)).set_index("checkpoint")
    assert ranked.unrest["c-3"] > 0.5
    assert not ranked.recommended["c-3"]
    assert set(rank_checkpoints(equal).query("in_best_set").checkpoint) == {"c-1", "c-2", "c-3"}


def test_a_checkpoint_without_a_finite_loss_is_never_chosen():
    broken = history({}, {"better": 0.3})
    broken.loc[(broken.checkpoint == "c-2") & (broken.subset == "code"), "loss_nats"] = np.nan
    ranked = rank_checkpoints(broken).set_index("checkpoint")
    assert ranked.in_best_set.to_dict() == {"c-1": True, "c-2": False}
    assert ranked.why["c-2"] == "its loss is not a number"


def test_gradient_state_of_a_quiet_training_is_zero():
    state = gradient_state(made_steps(600, seed=1), pd.Series([300, 500]))
    assert state.spikes_before.to_list() == [0, 0]
    assert (state.unrest < 0.2).all()
    assert gradient_state(None, pd.Series([1])).unrest.to_list() == [0.0]
    assert gradient_state(TRAINING_STEPS.empty(), pd.Series([1])).unrest.to_list() == [0.0]


def test_nothing_to_rank_is_said():
    with pytest.raises(MissingTableError, match="same samples"):
        rank_checkpoints(EVAL_SAMPLES.empty())


def test_the_set_holds_the_best_and_regret_is_below_the_lowest_loss():
    results = pd.DataFrame([benchmark("checkpoint_choice").judged(seed) for seed in range(12)])
    assert results.holds_best.mean() >= 11 / 12
    assert results.regret.mean() <= results.regret_lowest.mean()


FILES = pd.DataFrame({"checkpoint": [f"c-{i}" for i in range(1, 6)], "step": range(1, 6), "size_bytes": 10})


def test_retention_keeps_improvements_the_best_the_last_two_and_what_is_referred_to():
    ranked = rank_checkpoints(history({}, {"better": 0.2}, {"better": 0.1}, {"better": 0.12}, {"better": 0.1}))
    plan = retention_plan(FILES, ranked, {}).set_index("checkpoint")
    assert plan.keep.to_dict() == {"c-1": True, "c-2": True, "c-3": False, "c-4": True, "c-5": True}
    assert "recommended" in plan.why["c-2"]
    assert "no improvement" in plan.why["c-3"]
    kept = retention_plan(FILES, ranked, {"c-3": "named in a.jsonl"}).set_index("checkpoint")
    assert kept.why["c-3"] == "named in a.jsonl"


def test_what_was_not_evaluated_is_kept():
    plan = retention_plan(FILES, None, {})
    assert plan.keep.all()
    assert retention_plan(FILES.iloc[:0], None, {}).empty
    with pytest.raises(UnknownParameterError, match="keep_last"):
        retention_plan(FILES, None, {}, keep_last=0)
