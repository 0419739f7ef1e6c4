"""Sampling shares and their drift: shares by hand, onsets that are known, silence on constant mixes."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from workbench.analyses.sampling_mix import dispersion, intended_weights, mix_drift, overall_shares, sampling_shares
from workbench.tables import DATA_MIX, SAMPLE_IDS, SETTINGS


def drawn(weights, *, steps=400, batch=16, seed=0, runs_of=1):
    """Samples of subsets a, b, c: `weights(share of training)` -> their shares; `runs_of` equal ones in a row."""
    generator = np.random.default_rng(seed)
    subsets = np.concatenate(
        [
            np.repeat(generator.choice(list("abc"), batch // runs_of, p=weights(s / steps)), runs_of)
            for s in range(steps)
        ]
    )
    place = np.arange(len(subsets))
    rows = {"rank_id": 0, "step": place // batch + 1, "position": place % batch, "sample": place, "subset": subsets}
    return SAMPLE_IDS.check(pd.DataFrame(rows))


def constant(_at):
    return [0.6, 0.3, 0.1]


def test_shares_by_hand():
    table = SAMPLE_IDS.check(
        pd.DataFrame({"rank_id": 0, "step": [1] * 200 + [2] * 200, "position": 0, "sample": 1,
                      "subset": ["a"] * 150 + ["b"] * 50 + ["a"] * 100 + ["b"] * 100})
    )  # fmt: skip
    shares = sampling_shares(table).set_index(["first_step", "subset"])
    assert shares["share"].tolist() == [0.75, 0.25, 0.5, 0.5]
    assert shares["draws"].tolist() == [200] * 4
    low, high = stats.binomtest(150, 200).proportion_ci(method="wilson")
    assert shares.loc[(1, "a"), ["low", "high"]].tolist() == pytest.approx([low, high])
    overall = overall_shares(table, {"a": 2, "b": 1, "c": 1}).set_index("subset")
    assert overall["share"].tolist() == [250 / 400, 150 / 400, 0]
    assert overall["intended_share"].tolist() == [0.5, 0.25, 0.25]
    assert overall_shares(table)["intended_share"].isna().all()
    assert sampling_shares(table.iloc[:0]).empty
    assert mix_drift(sampling_shares(table)).empty  # two windows are no course


def test_a_constant_mix_hardly_ever_drifts():
    p_values = [mix_drift(sampling_shares(drawn(constant, seed=s)))["p_value"].min() for s in range(60)]
    assert np.mean(np.array(p_values) < 0.05) <= 0.05  # Bonferroni: at most that often, on average


def test_batches_that_hang_together_are_no_drift():
    p_values = [mix_drift(sampling_shares(drawn(constant, seed=s, runs_of=16)))["p_value"].min() for s in range(40)]
    assert dispersion(sampling_shares(drawn(constant, runs_of=16))) > 5
    assert np.mean(np.array(p_values) < 0.001) <= 0.05


@pytest.mark.parametrize("seed", range(3))
def test_the_onset_of_a_step_is_found(seed):
    shares = sampling_shares(drawn(lambda at: [0.6, 0.3, 0.1] if at < 0.4 else [0.75, 0.15, 0.1], seed=seed))
    drift = mix_drift(shares).set_index("subset")
    assert (drift.loc[["a", "b"], "p_value"] < 1e-6).all()
    assert drift.loc["b", "onset_step"] == pytest.approx(160, abs=30)
    assert drift.loc["b", ["before_share", "after_share"]].tolist() == pytest.approx([0.3, 0.15], abs=0.03)
    assert drift.loc["c", "p_value"] > 0.01


def test_the_onset_of_a_slide_is_found():
    def slide(at):
        gone = max(0.0, (at - 0.5) / 0.5) * 0.3
        return [0.6 + gone, 0.3 - gone, 0.1]

    drift = mix_drift(sampling_shares(drawn(slide, steps=800))).set_index("subset")
    assert drift.loc["b", "shape"] == "ramp"
    assert drift.loc["b", "onset_step"] == pytest.approx(400, abs=80)
    assert drift.loc["b", "after_share"] == pytest.approx(0, abs=0.05)


def test_where_the_intended_weights_come_from():
    settings = SETTINGS.check(
        pd.DataFrame({"name": ["sampling_weights.a", "config.sampling_weights.b", "lr"], "value": ["0.3", "0.7", "x"]})
    )
    assert intended_weights(settings) == {"a": 0.3, "b": 0.7}
    mix = DATA_MIX.check(pd.DataFrame({"from_step": 0, "source": ["a", "b"], "weight_share": 0.5}))
    assert intended_weights(None, mix) == {"a": 0.5, "b": 0.5}
    assert intended_weights(None) is None
    other = pd.DataFrame({"name": ["config.steps"], "value": ["9"]})
    assert intended_weights(SETTINGS.check(other)) is None
    assert intended_weights(None, pd.concat([mix, mix.assign(from_step=9)])) is None
