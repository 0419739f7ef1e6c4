"""Scoring, damaged checkpoints, tasks and the budget of inline evaluation, on a real tiny network."""

import math
from pathlib import Path

import mindspore as ms
import numpy as np
import pandas as pd
import pytest
from mindspore import nn

from workbench.errors import CheckpointError, UnknownParameterError
from workbench.files import RunFiles
from workbench.probes import evaluation
from workbench.probes.corpus import Document, Sample, windows
from workbench.probes.language_model import ByteTransformer, ModelConfig

pytestmark = pytest.mark.mindspore
CONFIG = ModelConfig(width=8, layers=1, heads=2, context_length=8)


@pytest.fixture(scope="module")
def network():
    ms.set_context(mode=ms.PYNATIVE_MODE)
    ms.set_device("CPU")
    ms.set_seed(0)
    return ByteTransformer(CONFIG)


def samples(subset: str, texts: list[bytes]):
    return [s for n, t in enumerate(texts) for s in windows(Document(subset=subset, document_id=f"{n}", text=t), 8)]


def test_scores_are_those_of_each_sample_alone(network):
    texts = [b"abcdefgh", b"hello", b"12 + 30 = 42"]
    task = evaluation.EvaluationTask(network=network, subsets={"a": samples("a", texts)}, batch_size=3)
    table = evaluation.score(task, checkpoint="c", step=7).samples
    assert table.sample_id.tolist() == ["0#0", "1#0", "2#0", "2#8"]  # a batch of three and a partial one
    for row, sample in zip(table.itertuples(), task.subsets["a"], strict=True):
        logits = network(ms.Tensor(sample.tokens[None])).asnumpy()[0].astype(np.float64)
        known = sample.targets >= 0
        logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        expected = -logs[np.arange(8), np.where(known, sample.targets, 0)][known].sum()
        assert row.loss_nats == pytest.approx(expected, rel=1e-4)
        assert row.correct_tokens == (logits.argmax(-1)[known] == sample.targets[known]).sum()
        assert row.scored_tokens == row.scored_bytes == known.sum()
    assert table.scored_tokens.tolist() == [8, 5, 8, 4]  # 8 bytes, 5 bytes, 12 bytes in two windows


def test_written_evaluation_is_read_back_and_its_loss_is_the_ratio_of_sums(network, tmp_path: Path):
    task = evaluation.EvaluationTask(network=network, subsets={"a": samples("a", [b"abcdefgh" * 3, b"xyz", b"12345"])})
    scored = evaluation.score(task, checkpoint="c", step=7)
    evaluation.write_evaluation(RunFiles(tmp_path), "checkpoint", scored, {"why": "test"})
    rows = pd.read_json(tmp_path / "evals/checkpoint.jsonl", lines=True)
    loss = rows[(rows.subset == "a") & (rows.metric == "loss")].value.item()
    assert loss == pytest.approx(scored.samples.loss_nats.sum() / (24 + 3 + 5))
    perplexity = rows[(rows.subset == "a") & (rows.metric == "perplexity")].value.item()
    assert perplexity == pytest.approx(math.exp(loss))
    assert rows.protocol.iloc[0] == {"why": "test"}
    assert len(pd.read_parquet(tmp_path / "eval_samples/checkpoint__c.parquet")) == 5  # 3 + 1 + 1 windows


@pytest.mark.parametrize("form", ["ckpt", "safetensors"])
def test_whole_checkpoints_load_and_cut_ones_never_do(network, tmp_path: Path, form: str):
    file = tmp_path / f"model.{form}"
    ms.save_checkpoint(network, str(file), format=form)
    assert evaluation.load_checkpoint(ByteTransformer(CONFIG), file) == 0
    content = file.read_bytes()
    for cut in np.linspace(0, len(content) - 1, 25).astype(int):
        damaged = tmp_path / f"cut_{cut}.{form}"
        damaged.write_bytes(content[:cut])
        with pytest.raises(CheckpointError, match=damaged.name):
            evaluation.load_checkpoint(ByteTransformer(CONFIG), damaged)


def test_a_checkpoint_of_another_model_is_named(network, tmp_path: Path):
    file = tmp_path / "other.ckpt"
    ms.save_checkpoint(ByteTransformer(ModelConfig(width=16, layers=2, heads=2, context_length=8)), str(file))
    with pytest.raises(CheckpointError, match="other shapes"):
        evaluation.load_checkpoint(network, file)


@pytest.mark.parametrize("name", ["no_colon", "no.such.module:f", "workbench.probes.rehearsal:nothing"])
def test_unknown_tasks_say_how_to_name_one(name: str):
    with pytest.raises(UnknownParameterError, match=r"package\.module:function"):
        evaluation.load_task(name, {})


class FirstFeatures(nn.Cell):
    """A classifier without parameters: its inputs are its logits."""

    def construct(self, features):
        return features


def test_a_classifier_of_feature_vectors_is_scored_per_label():
    inputs = {"sure": [2.0, 0.0, 0.0], "unsure": [0.0, 0.0, 0.0]}
    made = [
        Sample(subset="day", sample_id=name, document_id=name, tokens=np.array(x, np.float32),
               targets=np.array([0], np.int32), scored_bytes=1, preview=name)
        for name, x in inputs.items()
    ]  # fmt: skip
    task = evaluation.EvaluationTask(network=FirstFeatures(), subsets={"day": made}, batch_size=4)
    rows = evaluation.score(task, checkpoint="c", step=1).samples.set_index("sample_id")
    assert rows.loc["sure", "loss_nats"] == pytest.approx(np.log(np.exp(2) + 2) - 2, rel=1e-5)  # -log softmax
    assert rows.loc["unsure", "loss_nats"] == pytest.approx(np.log(3), rel=1e-5)
    assert rows["scored_tokens"].tolist() == [1, 1]


def test_padding_to_buckets_builds_fewer_graphs_and_changes_no_score(network):
    texts = [b"ab", b"abc", b"abcd", b"abcdefg", b"12 + 3"]
    rows = [s for n, t in enumerate(texts) for s in windows(Document(subset="a", document_id=str(n), text=t), len(t))]
    plain = evaluation.EvaluationTask(network=network, subsets={"a": rows}, batch_size=2)
    padded = evaluation.EvaluationTask(network=network, subsets={"a": rows}, batch_size=2, buckets=(4, 8))
    scorer, every_length = padded.scorer(), plain.scorer()
    alone = evaluation.score(plain, checkpoint="c", step=1, scorer=every_length).samples.set_index("sample_id")
    table = evaluation.score(padded, checkpoint="c", step=1, scorer=scorer).samples.set_index("sample_id")
    assert len(every_length._compiled) == 5
    assert len(scorer._compiled) == 2  # 2, 3, 4 in one bucket, 6, 7 in the other
    assert table["length_tokens"].to_dict() == alone["length_tokens"].to_dict()
    assert table["scored_tokens"].to_dict() == alone["scored_tokens"].to_dict()
    assert table.loc[alone.index, "loss_nats"].to_numpy() == pytest.approx(alone["loss_nats"].to_numpy(), rel=1e-4)
    assert scorer.is_compiled(rows)
    with pytest.raises(UnknownParameterError, match="largest bucket"):
        scorer.score(windows(Document(subset="a", document_id="long", text=b"x" * 20), 12))


def test_scoring_leaves_a_network_in_training_mode(network):
    network.set_train(True)
    task = evaluation.EvaluationTask(network=network, subsets={"a": samples("a", [b"abcdefgh"])})
    evaluation.score(task, checkpoint="c", step=1)
    assert network.training
    assert network.blocks[0].mlp_norm.training
    network.set_train(False)


def tiny_data(*, text: str) -> dict:
    return {"a": samples("a", [text.encode()])}


def test_a_task_is_made_of_named_parts(monkeypatch, network):
    import sys
    import types

    module = types.ModuleType("my_parts")
    module.build, module.data, module.scores = lambda: network, tiny_data, evaluation.TokenScores
    monkeypatch.setitem(sys.modules, "my_parts", module)
    parts = {"model": "my_parts:build", "data": "my_parts:data", "data_arguments": {"text": "abc"},
             "scores": "my_parts:scores", "buckets": [8]}  # fmt: skip
    task = evaluation.load_task("workbench.probes.evaluation:task_of_parts", parts)
    assert evaluation.score(task, checkpoint="c", step=1).samples["scored_tokens"].tolist() == [3]
    with pytest.raises(UnknownParameterError, match="model 'my_parts:nothing'"):
        evaluation.task_of_parts(model="my_parts:nothing", data="my_parts:data")
