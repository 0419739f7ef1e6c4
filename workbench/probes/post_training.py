"""The rare, many-sided evaluation of a checkpoint: robustness, context length, generation, instructions; one call.

A task is a function given as `"package.module:function"` that returns a `PostTrainingTask`. Robustness, generation and
instructions run on the exported MindIR where that works and agrees with the live cell, else on the cell, and the record
says which and why.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd
from mindspore import nn
from tqdm.auto import tqdm

from workbench.analyses.variants import ORIGINAL
from workbench.errors import UnknownParameterError
from workbench.files import RunFiles, append_json_lines, write_atomic
from workbench.probes.corpus import Sample
from workbench.probes.evaluation import load_checkpoint
from workbench.probes.export import Exported, exported
from workbench.probes.generation import Decoding, Prompt, generate, write_generations
from workbench.probes.run_writer import versions
from workbench.probes.scoring import Scorer
from workbench.probes.varied_samples import context_samples, perturbed_samples
from workbench.readers.checkpoints import file_sha256
from workbench.tables import VARIANT_SAMPLES

DIMENSIONS = ("robustness", "context_length", "generation", "instructions")
KIND = "post_training"


@dataclass(frozen=True, kw_only=True)
class PostTrainingTask:
    """What a model is asked, and how text becomes tokens and back."""

    network: nn.Cell
    documents: Mapping[str, Mapping[str, str]]  # subset -> document id -> text, held out from training
    encode: Callable[[str], Sequence[int]]  # without special tokens
    decode: Callable[[Sequence[int]], str]
    context_length: int
    longer: Callable[[nn.Cell, int], nn.Cell] | None = None  # the trained network for another context length
    begin: Sequence[int] = ()  # tokens that begin a document
    pad_token: int = 0
    stop_tokens: frozenset[int] = frozenset()
    prompts: Sequence[Prompt] = ()  # for generation; by default the beginnings of the documents
    instructions: Sequence[Prompt] = ()  # prompts with constraints
    per_subset: int = 48
    batch_size: int = 16
    new_tokens: int = 64
    repeats: int = 4
    seed: int = 0
    lengths: Sequence[int] = ()  # context lengths; by default 1/4, 1/2, 2 and 4 times the training length
    description: Mapping[str, object] = field(default_factory=dict)

    def samples(self) -> list[Sample]:
        """A few windows, to compare an exported graph on."""
        subset, documents = next(iter(self.documents.items()))
        varied = perturbed_samples(
            documents, subset=subset, encode=self.encode, context_length=self.context_length, per_subset=4
        )
        return varied[ORIGINAL]


def evaluate_post_training(
    run_dir: Path,
    checkpoint: Path,
    task: PostTrainingTask,
    *,
    step: int | None,
    dimensions: Sequence[str] = DIMENSIONS,
    use_mindir: bool = True,
) -> dict[str, object]:
    """Evaluate `checkpoint` in the given dimensions and record it in the run; return the record.

    Writes `post_training/<dimension>__<checkpoint>.parquet` (variants), `generations/<kind>__<checkpoint>.jsonl` and,
    last, a line in `post_training/records.jsonl`.

    Raises:
        CheckpointError: the checkpoint is damaged or does not fit the network.
        UnknownParameterError: there is no such dimension.
    """
    if unknown := sorted(set(dimensions) - set(DIMENSIONS)):
        raise UnknownParameterError(f"There is no dimension {unknown}.", fix=f"use some of {DIMENSIONS}")
    load_checkpoint(task.network, checkpoint)
    task.network.set_train(False)
    files, place = RunFiles(run_dir), _Place(checkpoint.stem, step)
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="workbench_mindir_") as scratch:
        graph = _graph(task, Path(scratch) / "model.mindir") if use_mindir else _live(task, "not asked for")
        for dimension in dimensions:
            start = time.perf_counter()
            _RUN[dimension](files, task, graph.network, place)
            seconds[dimension] = time.perf_counter() - start
    record = {
        "evaluation_id": uuid.uuid4().hex[:12], "time_ns": time.time_ns(), "checkpoint": place.checkpoint, "step": step,
        "checkpoint_sha256": file_sha256(checkpoint), "dimensions": list(dimensions), "seconds": seconds,
        "on_mindir": graph.is_graph, "why_not": graph.reason, "mindir_difference_nats": graph.largest_difference_nats,
        "versions": versions(), "task": dict(task.description),
    }  # fmt: skip
    append_json_lines(files.root / KIND / "records.jsonl", [record])
    return record


@dataclass(frozen=True)
class _Place:
    checkpoint: str
    step: int | None


def _graph(task: PostTrainingTask, path: Path) -> Exported:
    samples = task.samples()
    if not samples:
        return _live(task, "no document is long enough to compare an exported graph on")
    return exported(task.network, samples, path, batch_size=task.batch_size)


def _live(task: PostTrainingTask, reason: str) -> Exported:
    return Exported(network=task.network, is_graph=False, reason=reason, largest_difference_nats=None)


def _robustness(files: RunFiles, task: PostTrainingTask, network: nn.Cell, place: _Place) -> None:
    scorer = Scorer(network, batch_size=task.batch_size)
    frames = []
    for subset, documents in tqdm(task.documents.items(), desc="robustness", unit="subset"):
        varied = perturbed_samples(
            documents, subset=subset, encode=task.encode, context_length=task.context_length,
            per_subset=task.per_subset, seed=task.seed,
        )  # fmt: skip
        frames += [pd.DataFrame(scorer.score(samples)).assign(variant=v) for v, samples in varied.items() if samples]
    _write_variants(files, "robustness", frames, place)


def _context_length(files: RunFiles, task: PostTrainingTask, _network: nn.Cell, place: _Place) -> None:
    """On live cells: a network with longer positions is another graph than the one exported."""
    full = task.context_length
    lengths = [n for n in task.lengths or (full // 4, full // 2, 2 * full, 4 * full) if n > 0]
    reachable = [n for n in lengths if n <= full or task.longer is not None]
    found = {
        subset: context_samples(
            documents, subset=subset, encode=task.encode, training_length=full, lengths=reachable,
            per_subset=task.per_subset,
        )
        for subset, documents in task.documents.items()
    }  # fmt: skip
    frames = []
    for length in tqdm(sorted({full, *reachable}), desc="context length", unit="length"):
        network = task.network if length <= full or task.longer is None else task.longer(task.network, length)
        scorer = Scorer(network, batch_size=max(task.batch_size * full // max(length, full), 1))
        name = ORIGINAL if length == full else f"{length} tokens"
        for samples in found.values():
            if samples[length]:
                frames.append(pd.DataFrame(scorer.score(samples[length])).assign(variant=name))
    _write_variants(files, "context_length", frames, place)


def _write_variants(files: RunFiles, dimension: str, frames: Sequence[pd.DataFrame], place: _Place) -> None:
    frame = pd.concat(frames) if frames else VARIANT_SAMPLES.empty()
    table = VARIANT_SAMPLES.check(frame.assign(dimension=dimension, checkpoint=place.checkpoint, step=place.step))
    write_atomic(files.root / KIND / f"{dimension}__{place.checkpoint}.parquet", table.to_parquet(index=False))


def _generation(files: RunFiles, task: PostTrainingTask, network: nn.Cell, place: _Place) -> None:
    prompts = list(task.prompts) or document_prompts(task)
    greedy = Decoding(new_tokens=task.new_tokens, stop_tokens=task.stop_tokens, seed=task.seed)
    sampled = replace(greedy, temperature=0.8, repeats=task.repeats)
    records = _generated(network, prompts, task, (greedy, sampled), "generating")
    _write_texts(files, "samples", records, place)


def _instructions(files: RunFiles, task: PostTrainingTask, network: nn.Cell, place: _Place) -> None:
    if task.instructions:
        greedy = Decoding(new_tokens=task.new_tokens, stop_tokens=task.stop_tokens, seed=task.seed)
        records = _generated(network, task.instructions, task, (greedy,), "instructions")
        _write_texts(files, "instructions", records, place)


def _generated(
    network: nn.Cell, prompts: Sequence[Prompt], task: PostTrainingTask, ways: Sequence[Decoding], what: str
) -> list[dict[str, object]]:
    records = []
    with tqdm(total=len(prompts) * sum(d.repeats for d in ways), desc=what, unit="text") as bar:
        for decoding in ways:
            records += generate(
                network, prompts, decoding, context_length=task.context_length, decode=task.decode,
                batch_size=task.batch_size, pad_token=task.pad_token, progress=bar.update,
            )  # fmt: skip
    return records


def _write_texts(files: RunFiles, kind: str, records: Sequence[Mapping[str, object]], place: _Place) -> None:
    state = {"checkpoint": place.checkpoint, "step": place.step}
    path = files.root / "generations" / f"{kind}__{place.checkpoint}.jsonl"
    write_generations(path, [{**state, **r} for r in records])


def document_prompts(task: PostTrainingTask, *, share: float = 0.5) -> list[Prompt]:
    """The beginnings of documents, `share` of the context each, at most a quarter of `per_subset` per subset."""
    size = max(round(task.context_length * share) - len(task.begin), 1)
    most = max(task.per_subset // 4, 1)
    prompts = []
    for subset, documents in task.documents.items():
        for document_id, text in list(documents.items())[:most]:
            tokens = list(task.encode(text))[:size]
            shown = task.decode(tokens)
            prompts.append(Prompt(subset=subset, prompt_id=document_id, text=shown, tokens=[*task.begin, *tokens]))
    return prompts


_RUN: Mapping[str, Callable[[RunFiles, PostTrainingTask, nn.Cell, _Place], None]] = {
    "robustness": _robustness,
    "context_length": _context_length,
    "generation": _generation,
    "instructions": _instructions,
}
