"""The main job on a small scale, and its numbers against an evaluation written independently: numpy only."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("mindspore")
pytestmark = [pytest.mark.mindspore, pytest.mark.slow]

WIDTH, LAYERS, HEADS, LENGTH = 48, 2, 4, 64
SUBSETS = {"python", "english", "arithmetic", "chinese"}
OF_THE_MACHINE = {"evaluation_interference", "stall_steps", "step_time_drift"}  # a busy one disturbs for real


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory) -> Path:
    """A finished rehearsal: 160 steps, 4 checkpoints."""
    folder = tmp_path_factory.mktemp("rehearsal")
    done = subprocess.run(
        [Path(sys.executable).with_name("workbench"), "rehearse", "runs/small", "--steps", "160", "--checkpoints", "4",
         "--width", str(WIDTH), "--layers", str(LAYERS), "--context-length", str(LENGTH)],
        cwd=folder, capture_output=True, text=True, timeout=540, env={**os.environ, "COLUMNS": "120"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (folder / "printed.txt").write_text(done.stdout)
    return folder


def test_every_checkpoint_has_one_complete_report(rehearsal: Path):
    files = sorted(p.stem for p in (rehearsal / "runs/small/checkpoints").glob("*.safetensors"))
    folders = sorted(p.parent.name for p in (rehearsal / "reports/small").glob("*/report.json"))
    assert len(files) == 4
    assert folders == files
    for name in files:
        folder = rehearsal / "reports/small" / name
        record = json.loads((folder / "report.json").read_text())
        assert record["status"] == "complete"
        assert (folder / "report.html").stat().st_size < 3e6
        found = {f["cause"] for f in json.loads((folder / "findings.json").read_text())["findings"]}
        assert found <= OF_THE_MACHINE, found
    assert "Test alert" in (rehearsal / "reports/small/alerts.jsonl").read_text()
    printed = (rehearsal / "printed.txt").read_text()
    assert "4 of 4 checkpoints complete" in printed
    assert "workbench open runs/small" in printed


def test_perplexity_falls_on_every_subset(rehearsal: Path):
    evals = pd.read_json(rehearsal / "runs/small/evals/checkpoint.jsonl", lines=True)
    perplexity = evals[evals.metric == "perplexity"].pivot_table(index="step", columns="subset", values="value")
    assert set(perplexity.columns) >= SUBSETS
    assert (perplexity.iloc[-1] < perplexity.iloc[0]).all()


def test_the_last_report_equals_an_independent_evaluation(rehearsal: Path):
    from safetensors.numpy import load_file

    last = max((rehearsal / "runs/small/checkpoints").glob("*.safetensors"), key=lambda p: int(p.stem.split("_")[-1]))
    report = json.loads((rehearsal / "reports/small" / last.stem / "report.json").read_text())
    reported = {(s["subset"], s["metric"]): s["value"] for s in report["scores"]}
    samples = pd.read_parquet(rehearsal / f"runs/small/eval_samples/checkpoint__{last.stem}.parquet")
    parameters = load_file(str(last))
    texts = held_out_texts(set(samples.document_id))
    for subset in SUBSETS:
        rows = samples[samples.subset == subset]
        nats = count = hits = 0
        for sample_id in rows.sample_id:
            document, start = sample_id.rsplit("#", 1)
            stream = [257, *texts[document]]  # 257 begins a document
            piece = stream[int(start) : int(start) + LENGTH + 1]
            logits = numpy_logits(parameters, np.array(piece[:-1]))
            logs = logits - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True))
            logs -= logits.max(-1, keepdims=True)
            targets = np.array(piece[1:])
            nats -= logs[np.arange(len(targets)), targets].sum()
            hits += (logits.argmax(-1) == targets).sum()
            count += len(targets)
        assert count > 500
        assert reported[subset, "loss"] == pytest.approx(nats / count, abs=2e-5)
        assert reported[subset, "perplexity"] == pytest.approx(math.exp(nats / count), rel=2e-5)
        assert reported[subset, "bits_per_byte"] == pytest.approx(nats / count / math.log(2), rel=2e-5)
        assert reported[subset, "next_token_accuracy"] == pytest.approx(hits / count, abs=2 / count)


def test_evaluating_again_by_hand_gives_the_same_numbers(rehearsal: Path):
    done = subprocess.run(
        [Path(sys.executable).with_name("workbench"), "evaluate", "runs/small", "--checkpoint", "160"],
        cwd=rehearsal, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    evals = pd.read_json(rehearsal / "runs/small/evals/checkpoint.jsonl", lines=True)
    both = evals[(evals.step == 160) & (evals.metric == "loss") & (evals.subset == "english")]
    assert both.evaluation_id.nunique() == 2
    assert both.value.max() == pytest.approx(both.value.min(), rel=1e-6)
    assert f"{both.value.iloc[-1]:.4f}" in done.stdout


def held_out_texts(wanted: set[str]) -> dict[str, bytes]:
    from workbench.probes.corpus import load_documents

    return {d.document_id: d.text for d in load_documents(limit_bytes=400_000) if d.document_id in wanted}


def numpy_logits(parameters: dict[str, np.ndarray], tokens: np.ndarray) -> np.ndarray:
    """The transformer once more, in float64 numpy: (length, vocabulary) logits."""
    p = {name: value.astype(np.float64) for name, value in parameters.items()}
    length = len(tokens)
    x = p["embedding"][tokens] + p["position"][:length]
    future = np.triu(np.ones((length, length), bool), 1)
    for layer in range(LAYERS):
        b = f"blocks.{layer}."
        normal = layer_norm(x, p[b + "attention_norm.gamma"], p[b + "attention_norm.beta"])
        qkv = normal @ p[b + "attention.qkv.weight"].T + p[b + "attention.qkv.bias"]
        q, k, v = (part.reshape(length, HEADS, -1).transpose(1, 0, 2) for part in np.split(qkv, 3, -1))
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(WIDTH / HEADS)
        scores[:, future] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (weights / weights.sum(-1, keepdims=True)) @ v
        mixed = mixed.transpose(1, 0, 2).reshape(length, WIDTH)
        x = x + mixed @ p[b + "attention.out.weight"].T + p[b + "attention.out.bias"]
        normal = layer_norm(x, p[b + "mlp_norm.gamma"], p[b + "mlp_norm.beta"])
        hidden = normal @ p[b + "mlp_in.weight"].T + p[b + "mlp_in.bias"]
        hidden = 0.5 * hidden * (1 + np.tanh(math.sqrt(2 / math.pi) * (hidden + 0.044715 * hidden**3)))
        x = x + hidden @ p[b + "mlp_out.weight"].T + p[b + "mlp_out.bias"]
    return layer_norm(x, p["norm.gamma"], p["norm.beta"]) @ p["embedding"].T


def layer_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    variance = x.var(-1, keepdims=True)
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(variance + 1e-7) * gamma + beta
