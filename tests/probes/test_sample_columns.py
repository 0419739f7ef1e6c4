"""The Recorder's samples: a real training's ids are those that the data set handed out."""

import json
import random

import numpy as np
import pytest

from workbench.errors import UnknownParameterError

ms = pytest.importorskip("mindspore")
pytestmark = pytest.mark.mindspore

from workbench.findings.diagnosis import diagnose  # noqa: E402
from workbench.probes.corpus import Document, windows  # noqa: E402
from workbench.probes.language_model import ByteTransformer, ModelConfig, NextTokenLoss, adamw  # noqa: E402
from workbench.probes.recorder import Recorder  # noqa: E402
from workbench.probes.sample_columns import FirstInputs, SampleColumns  # noqa: E402
from workbench.probes.text_dataset import token_pipeline, write_mindrecord  # noqa: E402
from workbench.probes.train_step import RecordedStep  # noqa: E402
from workbench.run import open_run  # noqa: E402

SUBSETS = ("code", "math")


def written(tmp_path, count):
    """`count` windows, the first half of subset code, the second of math."""
    pick = random.Random(0)
    samples = [
        window
        for n in range(count)
        for window in windows(Document(subset=SUBSETS[2 * n // count], document_id=str(n), text=pick.randbytes(16)), 16)
    ]
    return write_mindrecord(samples, tmp_path / "data.mindrecord", subsets=SUBSETS)


def test_a_training_records_what_the_data_set_handed_out(tmp_path):
    path = written(tmp_path, 24)
    data = token_pipeline(path, batch_size=4, seed=5, with_samples=True)
    columns = SampleColumns(sample=2, subset=3, subset_names=SUBSETS, weights={"code": 0.5, "math": 0.5})
    ms.set_context(mode=ms.GRAPH_MODE)
    network = NextTokenLoss(ByteTransformer(ModelConfig(width=8, layers=1, heads=1, context_length=16)))
    step = RecordedStep(FirstInputs(network, 2), adamw(network, 1e-3))
    ms.train.Model(step).train(1, data, callbacks=[Recorder(tmp_path / "run", samples=columns)])
    table = open_run(tmp_path / "run", quiet=True).table("sample_ids")
    assert sorted(table["sample"]) == list(range(24))
    assert table["subset"].tolist() == [SUBSETS[n // 12] for n in table["sample"]]
    assert table["step"].tolist() == [1 + n // 4 for n in range(24)]
    assert set(table["epoch"]) == {1}
    again = token_pipeline(path, batch_size=4, seed=5, with_samples=True)
    handed_out = np.concatenate([b["sample"] for b in again.create_dict_iterator(num_epochs=1, output_numpy=True)])
    assert table["sample"].tolist() == handed_out.tolist()
    assert json.loads((tmp_path / "run/run.json").read_text())["sampling_weights"] == {"code": 0.5, "math": 0.5}


def test_a_run_that_did_not_shuffle_is_diagnosed(tmp_path):
    data = token_pipeline(written(tmp_path, 400), batch_size=8, shuffle=False, with_samples=True)
    columns = SampleColumns(sample=2, subset=3, subset_names=SUBSETS)
    with Recorder(tmp_path / "run", samples=columns) as recorder:
        for _ in recorder.batches(data.create_tuple_iterator(num_epochs=1)):
            recorder.end_step(1.0)
    causes = {f.cause: f for f in diagnose(tmp_path / "run").causes}
    assert "not shuffled at all" in causes["small_shuffle_buffer"].title
    assert causes["small_shuffle_buffer"].severity == "critical"  # every batch is of one subset
    assert "data_mix_shift" not in causes


def test_columns_that_are_not_there_are_told():
    batch = [np.zeros((2, 4)), np.array([[3], [4]]), np.array(["a", "b"])]
    assert SampleColumns(sample=1).record(7, None, batch) == {"step": 7, "epoch": None, "samples": [3, 4]}
    assert SampleColumns(sample=1, subset=2).record(7, 1, batch)["subsets"] == ["a", "b"]
    with pytest.raises(UnknownParameterError, match="3 columns and no column 5"):
        SampleColumns(sample=5).record(1, 1, batch)
    with pytest.raises(UnknownParameterError, match="holds float64, not numbers"):
        SampleColumns(sample=0).record(1, 1, batch)
    with pytest.raises(UnknownParameterError, match="more than the 3 subsets"):
        SampleColumns(sample=1, subset=1, subset_names=["a", "b", "c"]).record(1, 1, batch)
