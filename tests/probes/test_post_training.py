"""Exported graphs, generation and varied samples on a real tiny network; one call records all dimensions."""

import json

import mindspore as ms
import numpy as np
import pytest

from workbench.analyses.variants import ORIGINAL, variant_changes
from workbench.errors import CheckpointError, UnknownParameterError
from workbench.probes import export
from workbench.probes.corpus import Document, windows
from workbench.probes.evaluation import EvaluationTask, score, with_parameters
from workbench.probes.generation import Decoding, Prompt, choose, generate
from workbench.probes.language_model import BEGIN, PAD, ByteTransformer, ModelConfig
from workbench.probes.post_training import PostTrainingTask, evaluate_post_training
from workbench.probes.rehearsal_tasks import decode_bytes, sums, with_interpolated_positions
from workbench.probes.varied_samples import context_samples, perturbed_samples
from workbench.run import open_run

pytestmark = pytest.mark.mindspore
CONFIG = ModelConfig(width=16, layers=2, heads=2, context_length=16)
TEXT = "The quick brown fox jumps over the lazy dog. It did not rain. Nobody came home.\n" * 3


def encode(text: str) -> list[int]:
    return list(text.encode())


@pytest.fixture(scope="module")
def network():
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    ms.set_seed(0)
    made = ByteTransformer(CONFIG)
    random = np.random.default_rng(0)
    for parameter in made.get_parameters():  # far from the small initial values, so that outputs differ
        parameter.set_data(ms.Tensor(parameter.asnumpy() + random.normal(0, 0.1, parameter.shape).astype(np.float32)))
    made.set_train(False)
    return made


@pytest.fixture(autouse=True)
def _in_scratch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


class Counting:
    """A stand-in network in NumPy: logits that depend on all tokens up to their own."""

    random = np.random.default_rng(5)
    embedding, out = random.normal(0, 1, (258, 6)), random.normal(0, 1, (6, 258))

    def set_train(self, _mode):
        pass

    def __call__(self, tokens):
        seen = self.embedding[tokens.asnumpy()].cumsum(axis=1)
        return ms.Tensor((np.tanh(seen) @ self.out).astype(np.float32))


def test_an_exported_graph_scores_like_the_live_cell(network, tmp_path):
    samples = windows(Document(subset="a", document_id="d", text=TEXT.encode()), 16)
    found = export.exported(network, samples, tmp_path / "m.mindir", batch_size=4)
    assert found.is_graph, found.reason
    assert found.largest_difference_nats < 1e-5
    live = EvaluationTask(network=network, subsets={"a": samples}, batch_size=4)
    graph = with_parameters(live, tmp_path / "m.mindir")
    assert graph.network is not network
    scored = [score(task, checkpoint="c", step=1).samples["loss_nats"] for task in (live, graph)]
    assert scored[0].to_numpy() == pytest.approx(scored[1].to_numpy(), abs=1e-4)
    tokens = ms.Tensor(np.stack([s.tokens for s in samples[:3]]))  # another batch than scored with: it is dynamic
    assert found.network(tokens).asnumpy() == pytest.approx(network(tokens).asnumpy(), abs=1e-5)


def test_without_an_export_the_live_cell_is_used_and_the_reason_told(network, tmp_path, monkeypatch):
    def fails(*_arguments, **_options):
        raise RuntimeError("Unsupported op [Mystery]\nmore")

    monkeypatch.setattr(ms, "export", fails)
    found = export.exported(network, [], tmp_path / "m.mindir")
    assert found.network is network
    assert not found.is_graph
    assert "Unsupported op [Mystery]" in found.reason
    damaged = tmp_path / "cut.mindir"
    damaged.write_bytes(b"not a graph")
    with pytest.raises(CheckpointError, match=r"cut\.mindir"):
        export.load_mindir(damaged)


def test_greedy_texts_equal_the_argmax_step_by_step():
    network = Counting()
    prompts = [Prompt(subset="a", prompt_id=t, text=t, tokens=[BEGIN, *encode(t)]) for t in ("ab", "xyz", "hello")]
    records = generate(network, prompts, Decoding(new_tokens=20), context_length=16, decode=decode_bytes, batch_size=2,
                       pad_token=PAD)  # fmt: skip
    for prompt, record in zip(prompts, records, strict=True):
        tokens = list(prompt.tokens)
        for _ in range(20):
            seen = np.array([tokens[-16:]], np.int32)
            tokens.append(int(network(ms.Tensor(seen)).asnumpy()[0, -1].argmax()))
        assert record["output"] == decode_bytes(tokens[len(prompt.tokens) :])
        assert record["finish_reason"] == "length"


def test_sampled_texts_depend_on_seed_and_prompt_not_on_the_batch():
    network = Counting()
    prompts = [Prompt(subset="a", prompt_id=str(k), text="", tokens=[BEGIN, 65 + k]) for k in range(3)]
    way = Decoding(new_tokens=8, temperature=1.0, repeats=2, seed=3)
    options = {"context_length": 16, "decode": lambda tokens: " ".join(map(str, tokens)), "pad_token": PAD}
    together = generate(network, prompts, way, batch_size=4, **options)
    alone = generate(network, prompts[1:2], way, batch_size=2, **options)
    assert [r["output"] for r in together[2:4]] == [r["output"] for r in alone]
    assert len({r["output"] for r in together}) == 6
    with pytest.raises(UnknownParameterError, match="temperature"):
        generate(network, prompts, Decoding(temperature=-1.0), **options)


def test_the_next_token_is_drawn_from_the_softmax_and_stops():
    logits, picker = np.log(np.array([0.5, 0.3, 0.2])), np.random.default_rng(0)
    drawn = [choose(logits, Decoding(temperature=1.0), picker) for _ in range(4000)]
    assert np.bincount(drawn) / 4000 == pytest.approx([0.5, 0.3, 0.2], abs=0.03)
    two = {choose(logits, Decoding(temperature=1.0, most_likely=2), picker) for _ in range(200)}
    assert two == {0, 1}
    assert choose(logits, Decoding(), picker) == 0


def test_perturbed_windows_have_the_same_targets():
    varied = perturbed_samples({"d": TEXT, "e": TEXT[7:]}, subset="a", encode=encode, context_length=16, per_subset=4)
    original = {s.sample_id: s for s in varied[ORIGINAL]}
    assert len(original) == 4
    assert {s.document_id for s in original.values()} == {"d", "e"}
    changed = [s for name, samples in varied.items() if name != ORIGINAL for s in samples]
    assert changed
    for sample in changed:
        twin = original[sample.sample_id]
        assert sample.tokens.shape == (16,)
        assert (sample.targets == twin.targets).all()
        assert (sample.targets >= 0).sum() == 8
        assert (sample.tokens[9:] == twin.tokens[9:]).all()  # the scored half is what it was
    # a target is the token that follows
    one = varied[ORIGINAL][0]
    assert (one.targets[8:-1] == one.tokens[9:]).all()


def test_contexts_of_every_length_end_with_the_same_targets():
    found = context_samples({"d": TEXT, "short": "abc"}, subset="a", encode=encode, training_length=16,
                            lengths=(8, 32), per_subset=3)  # fmt: skip
    assert list(found) == [16, 8, 32]
    for k in range(3):
        ends = {n: samples[k].targets[samples[k].targets >= 0].tolist() for n, samples in found.items()}
        assert ends[8] == ends[16] == ends[32]
        assert len(ends[8]) == 2
        assert found[32][k].tokens[-16:].tolist() == found[16][k].tokens.tolist()


def test_stretched_positions_keep_the_ends(network):
    longer = with_interpolated_positions(network, 32)
    own, stretched = network.position.asnumpy(), longer.position.asnumpy()
    assert stretched[[0, -1]] == pytest.approx(own[[0, -1]], abs=1e-6)
    same = with_interpolated_positions(network, 16)
    assert same.position.asnumpy() == pytest.approx(own, abs=1e-6)
    assert (same.embedding.asnumpy() == network.embedding.asnumpy()).all()


def test_one_call_records_every_dimension(network, tmp_path):
    checkpoint = tmp_path / "tiny-1_5.ckpt"
    ms.save_checkpoint(network, str(checkpoint))
    task = PostTrainingTask(
        network=ByteTransformer(CONFIG), documents={"a": {"d": TEXT, "e": TEXT[5:]}}, encode=encode,
        decode=decode_bytes, context_length=16, longer=with_interpolated_positions, begin=(BEGIN,), pad_token=PAD,
        instructions=sums(0, count=3), per_subset=4, batch_size=4, new_tokens=4, repeats=2, lengths=(8, 32),
    )  # fmt: skip
    record = evaluate_post_training(tmp_path / "run", checkpoint, task, step=5)
    assert record["on_mindir"] is True
    assert record["mindir_difference_nats"] < 1e-5
    run = open_run(tmp_path / "run", quiet=True)
    samples = run.table("variant_samples")
    assert set(samples["dimension"]) == {"robustness", "context_length"}
    assert set(variant_changes(samples, "context_length")["variant"]) == {"8 tokens", "32 tokens"}
    texts = run.table("generations")
    assert (texts["constraints"].notna().sum(), len(texts)) == (3, 3 + 1 * (1 + 2))
    assert json.loads(texts["constraints"].dropna().iloc[0])[0]["kind"] == "first_line_equals"
    with pytest.raises(UnknownParameterError, match="no dimension"):
        evaluate_post_training(tmp_path / "run", checkpoint, task, step=5, dimensions=["charm"])
