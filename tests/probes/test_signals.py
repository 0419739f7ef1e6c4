"""Whatever a step returns: what is known is read, nothing else is taken for it, and nothing ends the training."""

import mindspore as ms
import numpy as np
import pytest

from workbench.probes.recorder import Recorder
from workbench.probes.signals import read_outputs

pytestmark = pytest.mark.mindspore
LOSS = ms.Tensor(2.0, ms.float32)


def test_the_flag_and_scale_of_loss_scale_cells():
    signals = read_outputs((LOSS, ms.Tensor(True), ms.Tensor(1024.0)))
    assert (signals.loss, signals.overflow, signals.loss_scale) == (2.0, True, 1024.0)


@pytest.mark.parametrize(
    "outputs",
    [
        LOSS,
        (LOSS, ms.Tensor(0.7)),  # a second loss, not a learning rate
        (LOSS, ms.Tensor(np.ones((4, 3))), ms.Tensor([1, 2, 0, 1])),  # logits and labels, no flag and scale
        {"loss": LOSS, "accuracy": 0.5},
    ],
)
def test_other_outputs_give_the_loss_alone(outputs):
    signals = read_outputs(outputs)
    assert signals.loss == 2.0
    assert [signals.learning_rate, signals.overflow, signals.loss_scale, signals.gradient_norms] == [None] * 4


@pytest.mark.parametrize("outputs", [None, (), "done", {"accuracy": 0.5}, object()])
def test_outputs_without_a_number_leave_the_loss_missing(outputs):
    assert read_outputs(outputs).loss is None


def test_a_loop_over_dictionaries_records_its_steps(tmp_path, caplog):
    with Recorder(tmp_path / "run", profile_steps=(10, 12)) as recorder:
        for _ in recorder.batches([{"tokens": np.zeros((4, 16))}, {"text": ["a", "b"]}]):
            recorder.end_step({"loss": LOSS}, learning_rate=np.float32(0.5))
    lines = (tmp_path / "run/metrics/rank_0.jsonl").read_text().splitlines()
    assert ['"tokens":64.0,"samples":4.0' in lines[0], '"tokens":null,"samples":null' in lines[1]] == [True, True]
    assert all('"loss":2.0,"learning_rate":0.5' in line for line in lines)
    assert "profile_steps=(10, 12) was not reached: the training ended at step 2" in caplog.text


def test_a_loop_in_wrong_order_says_what_to_do(tmp_path):
    recorder = Recorder(tmp_path / "run")
    with pytest.raises(ValueError, match="with Recorder"):
        next(recorder.batches([1]))
    with recorder, pytest.raises(ValueError, match="none is open"):
        recorder.end_step(LOSS)
