"""Samples that stand out: worst of an evaluation, and in batches at jumps of the loss."""

import numpy as np
import pandas as pd
import pytest

from tests.made_run import made_samples
from workbench.analyses.anomalous_samples import highest_loss_samples, suspect_samples
from workbench.errors import UnknownParameterError
from workbench.findings.anomalous_samples import find_bad_batch


def test_the_worst_samples_of_the_last_checkpoint_come_first():
    samples = pd.concat([made_samples("c-1", 1), made_samples("c-2", 2)]).reset_index(drop=True)
    odd = samples.index[(samples["checkpoint"] == "c-2") & (samples["subset"] == "code")][4]
    samples.loc[odd, "loss_nats"] = 9.0 * samples.loc[odd, "scored_tokens"]
    found = highest_loss_samples(samples, count=3)
    assert found.loc[0, "sample_id"] == samples.loc[odd, "sample_id"]
    assert found.loc[0, "loss"] == pytest.approx(9.0)
    assert found.loc[0, "sigmas"] > 10
    assert set(found["checkpoint"]) == {"c-2"}
    samples.loc[odd, "loss_nats"] = np.inf
    assert highest_loss_samples(samples).loc[0, "loss"] == np.inf
    assert highest_loss_samples(samples, checkpoint="c-1")["checkpoint"].unique().tolist() == ["c-1"]
    with pytest.raises(UnknownParameterError, match="c-9"):
        highest_loss_samples(samples, checkpoint="c-9")


def batches(*, bad_row=None, spikes=(100,), scored=True):
    """4 batches of 8 samples around each jump; one row of the last batch has a loss of its own."""
    random = np.random.default_rng(0)
    rows = []
    for spike in spikes:
        for step in range(spike - 3, spike + 1):
            for row in range(8):
                bad = step == spike and row == bad_row
                loss = 12.0 if bad else 2.5 + random.normal(0, 0.2)
                print_ = "always the same" if bad else f"{spike}/{step}/{row}"
                rows.append(
                    (0, spike, step, row, print_, 4.0, loss if scored else np.nan, "\x00\x00junk" if bad else "text")
                )
    columns = ["rank_id", "spike_step", "step", "row", "fingerprint", "batch_loss", "loss", "preview"]
    return pd.DataFrame(rows, columns=columns)


def test_the_odd_sample_of_a_jump_is_named():
    found = suspect_samples(batches(bad_row=5))
    assert found[["step", "row"]].to_numpy().tolist() == [[100, 5]]
    (finding,) = find_bad_batch(batches(bad_row=5))
    assert finding.cause == "bad_batch"
    assert finding.steps.list == (100,)
    assert "row 5 of step 100" in finding.evidence[0].fact


def test_a_sample_that_is_in_every_jump_is_named_without_scores():
    (finding,) = find_bad_batch(batches(bad_row=2, spikes=(100, 200, 300), scored=False))
    assert "in the batches of 3 jumps" in finding.title
    assert finding.confidence == "high"


def test_jumps_without_an_odd_sample_blame_none():
    assert find_bad_batch(batches(spikes=(100, 200))) == []
    assert find_bad_batch(batches(spikes=(100,), scored=False)) == []
