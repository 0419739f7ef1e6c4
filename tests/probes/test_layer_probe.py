"""The layer probe in both modes: numbers against numpy, and which layers are seen."""

import json

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
from mindspore import nn
from mindspore.train import Model

from workbench.errors import UnknownParameterError
from workbench.probes.language_model import ByteTransformer, ModelConfig, NextTokenLoss
from workbench.probes.layer_probe import LayerProbe, default_layers, layer_rows
from workbench.probes.recorder import Recorder
from workbench.probes.train_step import RecordedStep

pytestmark = pytest.mark.mindspore
CONFIG = ModelConfig(width=16, layers=2, heads=2, context_length=16)
ROWS = np.random.default_rng(0).integers(0, 256, (12, 2, 16)).astype(np.int32)


def made():
    ms.set_seed(0)
    return ByteTransformer(CONFIG)


def outputs_by_hand(names):
    """Outputs of the named cells of the untrained network on the first batch, in PyNative mode."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    network, found = made(), {}
    cells = dict(network.cells_and_names())
    for name in names:
        cells[name].register_forward_hook(lambda _c, _i, out, name=name: found.__setitem__(name, out.asnumpy()))
    network(ms.Tensor(ROWS[:4, 0]))
    return found


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_statistics_equal_those_of_numpy(tmp_path, monkeypatch, mode):
    monkeypatch.chdir(tmp_path)
    ms.set_device("CPU")
    by_hand = outputs_by_hand(["blocks.0.attention", "blocks.1.mlp_out", "norm"])
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    network = made()
    recorder = Recorder(tmp_path / "run")
    probe = LayerProbe(network, recorder, every=2, position_ranges=4)
    data = ds.NumpySlicesDataset((ROWS[:, 0], ROWS[:, 1]), ["tokens", "targets"], shuffle=False).batch(4)
    step = RecordedStep(NextTokenLoss(network), nn.SGD(network.trainable_params(), 0.1))
    Model(step).train(1, data, callbacks=[recorder, probe])
    records = [json.loads(line) for line in (tmp_path / "run/layers/rank_0.jsonl").read_text().splitlines()]
    assert [r["step"] for r in records] == [1, 2]
    first = records[0]
    assert first["positions"] == [[0, 3], [4, 7], [8, 11], [12, 15]]
    assert list(first["layers"]) == list(default_layers(network))
    assert records[1]["layers"]["norm"] != first["layers"]["norm"]
    for name, output in by_hand.items():
        rows = first["layers"][name]
        for row, part in zip(rows, [output, *np.split(output, 4, axis=1)], strict=True):
            expected = [part.mean(), part.std(), np.abs(part).max(), (part == 0).mean()]
            assert row == pytest.approx([float(x) for x in expected], rel=1e-3, abs=1e-5)


def test_default_layers_are_the_parts_of_list_elements():
    names = list(default_layers(made()))
    assert "blocks.0.attention" in names
    assert "blocks.1.mlp_out" in names
    assert "norm" in names
    assert not {"blocks", "blocks.0", "blocks.0.attention.qkv"} & set(names)


def test_buffers_that_no_hook_filled_are_no_layers():
    blank = np.full((2, 5), np.nan)
    assert layer_rows(blank) == []
    whole = blank.copy()
    whole[0] = [1.0, 5.0, 3.0, 0.5, 16]
    assert layer_rows(whole) == [[1.0, 2.0, 3.0, 0.5]]  # sqrt(5 - 1)


def test_what_cannot_be_probed_is_told(tmp_path):
    with pytest.raises(UnknownParameterError, match="No layer"):
        LayerProbe(made(), Recorder(tmp_path), select=lambda _name, _cell: False)
    with pytest.raises(UnknownParameterError, match="no counts"):
        LayerProbe(made(), Recorder(tmp_path), every=0)
