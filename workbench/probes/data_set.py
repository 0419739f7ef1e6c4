"""A training data set, in files or MindRecord -> table `data_samples`, one row per sample: what it is, what ails it."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from workbench.analyses.duplicates import Signature, digest, near_groups, signature
from workbench.errors import UnknownContentError, UnknownParameterError
from workbench.files import RunFiles
from workbench.probes.text_tokens import TokenCounter, TokenCounts, token_counter
from workbench.readers.json_document import RawSample
from workbench.readers.sample_files import read_samples, sample_files
from workbench.tables import DATA_SAMPLES

NEAR_LIMIT = 200_000
LOOKED_AT = 200  # samples by which the fields are chosen
TEXT_NAMES = ("text", "content", "body", "document")
TOKEN_NAMES = ("tokens", "input_ids", "token_ids", "ids")
SUBSET_NAMES = ("subset", "source", "data_source", "dataset", "domain", "category", "lang", "language")
MOST_SUBSETS = 50


class Found(NamedTuple):
    """One sample with its file."""

    file: str
    sample: RawSample


def probe_data_set(
    path: str | os.PathLike[str],
    *,
    form: str | None = None,
    encoding: str | None = None,
    text_field: str | None = None,
    subset_field: str | None = None,
    tokenizer: object | None = None,
    training_length: int | None = None,
    near_duplicates: bool = True,
    near_limit: int = NEAR_LIMIT,
    limit: int | None = None,
    show_progress: bool = True,
) -> pd.DataFrame:
    """Look at every sample of a data set.

    Args:
        path: JSON, JSON Lines, CSV or text file, MindRecord file, or a folder of them.
        form: form of the files, see `read_samples`.
        encoding: encoding of the files, see `read_samples`.
        text_field: field with the text; by default one called text or content, else the one with most characters.
        subset_field: field that names the subset; by default one called subset, source, ..., else the file's stem.
            Samples without it have none.
        tokenizer: "bytes", the path of a tokenizer.json, or a `tokenizers.Tokenizer`; without one, tokens are counted
            only where the samples are lists of tokens.
        training_length: tokens that training keeps of a sample.
        near_duplicates: look for near duplicates, too (about 1 ms a sample).
        near_limit: only among the first so many samples; `near_checked` says which.
        limit: look at the first so many samples only.
        show_progress: show a progress bar.

    Returns:
        Table `data_samples`; its `dataset` is the stem of `path`.

    Raises:
        UnknownContentError: there is no data.
        UnknownParameterError: no sample has the named field.
    """
    root = Path(path)
    head = [f.sample.fields for f in islice(_samples(root, form, encoding), LOOKED_AT) if f.sample.fields]
    fields = _Fields.chosen(head, text_field, subset_field)
    counter = token_counter(tokenizer) if tokenizer is not None else None
    rows: list[dict[str, object]] = []
    signatures: list[Signature | None] = []
    found = islice(_samples(root, form, encoding), limit)
    for number, (file, sample) in enumerate(tqdm(found, desc="samples", disable=not show_progress)):
        row, text = _row(sample, fields, counter)
        rows.append({"sample": number, "file": file, "subset": None if fields.subset else Path(file).stem} | row)
        if near_duplicates and number < near_limit:
            signatures.append(signature(text) if text else None)
    return _table(root, rows, signatures if near_duplicates else [], training_length)


def save_data_samples(samples: pd.DataFrame, run_dir: str | os.PathLike[str]) -> Path:
    """Write table `data_samples` into a run directory, where reports and `diagnose` find it; returns the file."""
    folder = RunFiles(Path(run_dir)).data_samples
    folder.mkdir(parents=True, exist_ok=True)
    name = str(samples["dataset"].iloc[0]) if len(samples) else "empty"
    target = folder / f"{name}.parquet"
    partial = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    DATA_SAMPLES.check(samples).to_parquet(partial, index=False)
    partial.replace(target)
    return target


# reading
def _samples(root: Path, form: str | None, encoding: str | None) -> Iterator[Found]:
    records = [root] if root.suffix == ".mindrecord" else sorted(root.rglob("*.mindrecord")) if root.is_dir() else []
    for path in records:
        yield from _mindrecord_samples(path)
    if records:
        return
    for path in sample_files(root):
        name = str(path.relative_to(root)) if root.is_dir() else path.name
        for sample in read_samples(path, form=form, encoding=encoding):
            yield Found(name, sample)


def _mindrecord_samples(path: Path) -> Iterator[Found]:
    if not path.is_file():
        raise UnknownContentError(f"{path} does not exist.", fix="check the path of the data")
    from workbench.probes.mindrecord import read_mindrecord  # without MindSpore, other data can still be looked at

    for number, fields in enumerate(read_mindrecord(path), 1):
        yield Found(path.name, RawSample(number, fields, "", ""))


class _Fields(NamedTuple):
    """Which fields hold the text, the tokens and the subset."""

    text: str | None
    tokens: str | None
    subset: str | None

    @classmethod
    def chosen(cls, samples: Sequence[Mapping[str, Any]], text: str | None, subset: str | None) -> _Fields:
        for name in (text, subset):
            if name is not None and not any(name in s for s in samples):
                raise UnknownParameterError(
                    f"No sample has a field {name!r}.", fix=f"use one of {sorted({k for s in samples for k in s})}"
                )
        subset = subset or next((n for n in SUBSET_NAMES if n != text and _is_subset(samples, n)), None)
        if text is None:
            text = next((n for n in TEXT_NAMES if any(isinstance(s.get(n), str) for s in samples)), None)
        tokens = next((n for n in TOKEN_NAMES if any(_is_tokens(s.get(n)) for s in samples)), None)
        if text is None and tokens is None:
            text = _longest_text(samples, subset)
        return cls(text, tokens, subset)


def _is_subset(samples: Sequence[Mapping[str, Any]], name: str) -> bool:
    values = {s.get(name) for s in samples if isinstance(s.get(name), str | int) and not isinstance(s.get(name), bool)}
    return 0 < len(values) <= MOST_SUBSETS


def _is_tokens(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 1 and value.dtype.kind in "iu"
    return isinstance(value, list) and bool(value) and all(type(v) is int for v in value)


def _longest_text(samples: Sequence[Mapping[str, Any]], subset: str | None) -> str | None:
    characters: Counter[str] = Counter()
    for sample in samples:
        characters.update({k: len(v) for k, v in sample.items() if isinstance(v, str) and k != subset})
    return max(characters, key=lambda name: characters[name]) if characters else None


# one sample
def _row(sample: RawSample, fields: _Fields, counter: TokenCounter | None) -> tuple[dict[str, object], str]:
    """What the table says of the sample, and its text for the search of near duplicates."""
    row: dict[str, object] = {"place": sample.place}
    if sample.fields is None:
        return row | {"problem": sample.problem}, ""
    if fields.subset is not None and sample.fields.get(fields.subset) is not None:
        row["subset"] = str(sample.fields[fields.subset])
    value = sample.fields.get(fields.text) if fields.text is not None else None
    ids = sample.fields.get(fields.tokens) if fields.tokens is not None else None
    if value is None and ids is None:
        name = fields.text if fields.text is not None else fields.tokens
        return row | {"problem": "no text" if name is None else f"field {name!r} is missing"}, ""
    if value is None:
        return row | _of_tokens(ids), " ".join(map(str, np.asarray(ids).ravel().tolist()))
    text = value if isinstance(value, str) else str(value)
    return row | _of_text(text, ids, counter), text


def _of_text(text: str, ids: Any, counter: TokenCounter | None) -> dict[str, object]:
    row: dict[str, object] = {
        "characters": len(text),
        "size_bytes": len(text.encode("utf-8", "surrogatepass")),
        "is_empty": not text.strip(),
        "digest": digest(text),
    }
    if counter is None:
        return row | ({} if ids is None else {"tokens": np.asarray(ids).size})
    start = time.perf_counter_ns()
    counts: TokenCounts = counter(text)
    spent_us = (time.perf_counter_ns() - start) / 1e3
    row |= {"tokens": counts.tokens, "unknown_tokens": counts.unknown, "byte_tokens": counts.single_bytes}
    return row | {"process_us": spent_us, "is_empty": row["is_empty"] or counts.tokens == 0}


def _of_tokens(ids: Any) -> dict[str, object]:
    values = np.asarray(ids).ravel()
    return {
        "tokens": values.size,
        "size_bytes": values.nbytes,
        "is_empty": values.size == 0,
        "digest": digest(" ".join(map(str, values.tolist()))),
    }


def _table(
    root: Path, rows: Iterable[dict[str, object]], signatures: Sequence[Signature | None], training_length: int | None
) -> pd.DataFrame:
    frame = pd.DataFrame(list(rows), columns=DATA_SAMPLES.column_names)
    frame = frame.assign(dataset=root.name.split(".")[0] or "data", training_length_tokens=training_length)
    groups = near_groups(signatures).reindex(range(len(frame)))
    return DATA_SAMPLES.check(frame.assign(near_group=groups, near_checked=frame["sample"] < len(signatures)))
