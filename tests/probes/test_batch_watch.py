"""BatchWatch: which batches are written at a jump, and which losses are jumps."""

import json
from types import SimpleNamespace

import mindspore as ms
import numpy as np
import pytest

from workbench.errors import UnknownParameterError
from workbench.probes.batch_watch import BatchWatch, is_jump, token_losses
from workbench.probes.language_model import ByteTransformer, ModelConfig
from workbench.probes.recorder import Recorder
from workbench.readers.kinds import FileContext
from workbench.readers.run_extras import read_batches

pytestmark = pytest.mark.mindspore


def fed(watch, recorder, losses):
    """Call the hook as `Model.train` would, with batches that hold their step."""
    for step, loss in enumerate(losses, 1):
        recorder.step = step
        batch = (ms.Tensor(np.full((2, 4), step, np.int32)), ms.Tensor(np.array([10 * step, 10 * step + 1])))
        params = SimpleNamespace(net_outputs=ms.Tensor(np.float32(loss)), train_dataset_element=batch)
        watch.on_train_step_end(SimpleNamespace(original_args=lambda params=params: params))


def test_the_batches_up_to_a_jump_are_written_with_ids_and_previews(tmp_path):
    recorder = Recorder(tmp_path / "run")
    watch = BatchWatch(recorder, before=1, id_column=1, row_losses=lambda inputs: np.array([1.0, 7.0]))
    noise = np.random.default_rng(0).normal(0, 0.05, 60)
    losses = 2 + noise
    losses[[40, 41, 55]] = [9.0, 9.0, np.nan]  # steps 41, 42 (the same episode), 56
    fed(watch, recorder, losses)
    path = tmp_path / "run/batches/rank_0.jsonl"
    table = read_batches(path, FileContext())["suspect_batches"].table
    assert table[["spike_step", "step", "row", "sample_id"]].to_numpy().tolist() == [
        [41, 40, 0, "400"], [41, 40, 1, "401"], [41, 41, 0, "410"], [41, 41, 1, "411"],
        [56, 55, 0, "550"], [56, 55, 1, "551"], [56, 56, 0, "560"], [56, 56, 1, "561"],
    ]  # fmt: skip
    assert table["loss"].tolist() == [1.0, 7.0] * 4
    assert table.loc[2, "preview"] == "41 41 41 41"
    assert table["fingerprint"].nunique() == 8
    assert table.loc[2, "batch_loss"] == pytest.approx(9.0)
    assert json.loads(path.read_text().splitlines()[-1])["batch_loss"] == "NaN"


def test_what_a_jump_is():
    calm = [2.0 + 0.01 * (k % 5) for k in range(50)]
    assert not is_jump(calm, 2.05)
    assert is_jump(calm, 2.5)
    assert not is_jump(calm, 1.0)  # a fall is none
    assert not is_jump(calm[:10], 9.0)  # too little is known
    assert is_jump([], float("inf"))
    assert not is_jump([2.0] * 50, 2.0)


def test_rows_are_scored_alone():
    ms.set_context(mode=ms.PYNATIVE_MODE)
    ms.set_device("CPU")
    network = ByteTransformer(ModelConfig(width=8, layers=1, heads=2, context_length=4))
    network.set_train(True)
    tokens, targets = (
        np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.int32),
        np.array([[2, 3, 4, -100], [6, 7, 8, 9]], np.int32),
    )
    losses = token_losses(network)((ms.Tensor(tokens), ms.Tensor(targets)))
    assert network.training
    logits = network(ms.Tensor(tokens)).asnumpy().astype(np.float64)
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = [
        -np.mean([logs[0, k, targets[0, k]] for k in range(3)]),
        -np.mean([logs[1, k, targets[1, k]] for k in range(4)]),
    ]
    assert losses == pytest.approx(expected, rel=1e-4)


def test_impossible_settings(tmp_path):
    with pytest.raises(UnknownParameterError, match="no counts"):
        BatchWatch(Recorder(tmp_path), before=-1)
