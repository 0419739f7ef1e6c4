"""InlineEval inside a real training: fixed samples, one compilation, decisions in the log, a budget that holds."""

import json

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
from mindspore import nn
from mindspore.train import Model

from workbench.errors import UnknownParameterError
from workbench.probes.corpus import Document, windows
from workbench.probes.evaluation import EvaluationTask
from workbench.probes.inline_evaluation import InlineEval
from workbench.probes.language_model import ByteTransformer, ModelConfig, NextTokenLoss
from workbench.probes.recorder import Recorder
from workbench.probes.train_step import RecordedStep
from workbench.run import open_run

pytestmark = pytest.mark.mindspore
TEXTS = {"a": b"hello there, how are you", "b": b"12 + 3 = 15\n" * 3}


def trained(folder, *, steps=12, late=None, **options):
    """A tiny graph-mode training with inline evaluation; returns the callback and the opened run."""
    ms.set_device("CPU")
    ms.set_context(mode=ms.GRAPH_MODE)
    network = ByteTransformer(ModelConfig(width=16, layers=1, heads=2, context_length=8))
    subsets = {s: windows(Document(subset=s, document_id=s, text=t), 8) for s, t in TEXTS.items()}
    recorder = Recorder(folder / "run")
    inline = InlineEval(EvaluationTask(network=network, subsets=subsets, batch_size=2), recorder, **options)
    if late:
        inline.add_subset("late", windows(Document(subset="late", document_id="l", text=b"joined the queue"), 8))
    rows = np.random.default_rng(0).integers(0, 256, (4 * steps, 2, 8)).astype(np.int32)
    data = ds.NumpySlicesDataset((rows[:, 0], rows[:, 1]), ["tokens", "targets"], shuffle=False).batch(4)
    step = RecordedStep(NextTokenLoss(network), nn.SGD(network.trainable_params(), 0.1))
    Model(step).train(1, data, callbacks=[recorder, inline])
    return inline, open_run(folder / "run", quiet=True)


def test_without_control_all_subsets_come_at_every_interval_and_nothing_compiles_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inline, run = trained(tmp_path, every=4, controlled=False, late=True)
    events = run.table("events")
    evals = events[events["kind"] == "eval"]
    assert evals["step"].tolist() == [4, 8, 12]
    assert (events["kind"] == "compile").sum() == 1  # of the training graph: evaluating did not touch it
    assert len(inline._scorer._scores.compile_cache) == 1  # the three evaluations of three subsets share a graph
    samples = run.table("eval_samples")
    ids = [rows["sample_id"].tolist() for _, rows in samples.groupby("step")]
    assert ids[0] == ids[1] == ids[2]
    assert set(samples["subset"]) == {"a", "b", "late"}
    decisions = [json.loads(d) for d in events.loc[events["kind"] == "inline_decision", "detail"]]
    assert [d["subsets"][0] for d in decisions] == ["late", "late", "late"]
    assert [d["next_step"] for d in decisions] == [8, 12, 16]
    assert run.table("training_steps")["loss"].diff().abs().min() > 0  # it went on training


def test_with_control_nothing_starts_that_the_budget_does_not_cover(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inline, run = trained(tmp_path, every=4)  # a second of training earns 50 ms, less than a compilation
    events = run.table("events")
    assert (events["kind"] == "eval").sum() == 0
    decision = json.loads(events.loc[events["kind"] == "inline_decision", "detail"].iloc[0])
    assert decision["reason"] == "budget"
    assert decision["expected_seconds"] > 0.05 * decision["training_seconds"]
    assert decision["next_step"] > 12
    assert inline.spent_seconds == 0.0


def test_impossible_settings_are_refused(tmp_path):
    task = EvaluationTask(network=nn.ReLU(), subsets={})
    with pytest.raises(UnknownParameterError, match="empty has no samples"):
        InlineEval(EvaluationTask(network=nn.ReLU(), subsets={"empty": []}), Recorder(tmp_path))
    for options in ({"every": 0}, {"budget_share": 0.0}, {"budget_share": 5}):
        with pytest.raises(UnknownParameterError, match="no interval and no share"):
            InlineEval(task, Recorder(tmp_path), **options)


def test_a_disk_that_cannot_be_written_does_not_end_the_training(tmp_path, monkeypatch, caplog):
    def full(*_arguments):
        raise OSError(28, "No space left on device")

    inline = InlineEval(EvaluationTask(network=nn.ReLU(), subsets={}), Recorder(tmp_path / "run"))
    monkeypatch.setattr("workbench.probes.inline_evaluation.write_evaluation", full)
    inline._write(None, {})
    assert "No space left on device" in caplog.text
