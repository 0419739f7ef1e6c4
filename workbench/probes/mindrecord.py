"""Data files -> MindRecord shards, with progress; a conversion that was killed goes on without loss or repetition.

A shard is written in a hidden folder, made durable, and moved to its place; then `conversion.json` is replaced in one
go. It alone says what is done: whatever else lies there is made again, and the file of set-aside samples is cut back to
the length that it states.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec
from mindspore.mindrecord import FileReader, FileWriter
from tqdm.auto import tqdm

from workbench.errors import OutputWriteError, UnknownParameterError, UnreadableFileError
from workbench.files import write_json_atomic
from workbench.probes.conversion_state import (
    MANIFEST,
    Conversion,
    Shard,
    earlier_state,
    job_of,
    only_one,
    read_conversion,
)
from workbench.probes.mindrecord_schema import Field, Unfit, fit, infer_fields, mindrecord_schema
from workbench.readers.json_document import shown
from workbench.readers.sample_files import RawSample, form_of, read_samples, sample_files

SET_ASIDE = "set_aside.jsonl"
PARTIAL = ".partial"
SHARD_BYTES = 128 << 20  # of rows; what a kill can cost
ROWS_PER_WRITE = 1000
BYTES_PER_WRITE = 8 << 20
PROBED_SAMPLES = 2000
LARGEST_ROW_BYTES = 16 << 20  # half of MindRecord's page

Transform = Callable[[dict[str, Any]], "Mapping[str, Any] | Sequence[Mapping[str, Any]] | None"]


def convert_to_mindrecord(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    form: str | None = None,
    encoding: str | None = None,
    fields: Sequence[Field] | None = None,
    transform: Transform | None = None,
    shard_bytes: int = SHARD_BYTES,
    show_progress: bool = True,
) -> Conversion:
    """Convert one data file, or all in a folder, to MindRecord shards in the folder `output`.

    Call it again after a kill and it goes on; call it after it finished and it does nothing. Samples that cannot be
    read or do not fit the fields stand in `set_aside.jsonl` with file, place, reason and text.

    Args:
        source: file or folder, as `sample_files` takes it.
        output: folder for the shards, `conversion.json` and `set_aside.jsonl`; made if missing.
        form: form of the files, by default as `read_samples` sees it.
        encoding: encoding of the files, likewise.
        fields: fields of the shards; by default inferred from the first 2,000 samples, spread over the files.
        transform: sample -> sample, several samples (windows of a text), or None to leave it out. It must give the same
            for the same sample, or a conversion that was killed does not go on where it was.
        shard_bytes: about how large a shard may become.
        show_progress: show a progress bar.

    Returns:
        The state as `conversion.json` holds it.

    Raises:
        UnknownParameterError: `output` holds shards of another job, or another process is converting into it.
        UnreadableFileError, UnknownContentError: no data.
        OutputWriteError: no space, or no permission.
    """
    files = sample_files(Path(source))
    root = Path(output)
    root.mkdir(parents=True, exist_ok=True)
    job = job_of(Path(source), files, form=form, encoding=encoding, shard_bytes=shard_bytes)
    with only_one(root):
        state = earlier_state(root, job)
        if state is None:
            chosen = list(fields or _inferred(files, form, encoding, transform))
            state = Conversion(job=job, fields=chosen)
            write_json_atomic(root / MANIFEST, state)
        if not state.finished:
            _Work(root, state, transform).run(files, form=form, encoding=encoding, show_progress=show_progress)
    return state


def mindrecord_files(output: str | os.PathLike[str]) -> list[str]:
    """The shards of a finished conversion, as `mindspore.dataset.MindDataset` takes them.

    Raises:
        UnknownParameterError: there is no conversion, or it is not finished.
    """
    state = read_conversion(output)
    if state is None or not state.finished:
        raise UnknownParameterError(
            f"{output} holds no finished conversion.", fix="run `workbench data convert` with this output (again)"
        )
    return [str(Path(output) / shard.name) for shard in state.shards]


def read_mindrecord(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """The rows of one MindRecord file, as dictionaries of Python and NumPy values.

    Raises:
        UnreadableFileError: it is not a MindRecord file, or its index (`.db`) is missing.
    """
    try:
        reader = FileReader(str(path))
    except Exception as error:  # noqa: BLE001  (MindRecord raises its own types, which share no base)
        raise UnreadableFileError(
            f"{path} cannot be read as MindRecord: {str(error).strip().splitlines()[0]}",
            fix="keep the .db file beside it under its original name, or convert again",
        ) from None
    try:
        yield from reader.get_next()
    finally:
        reader.close()


def _inferred(
    files: Sequence[Path], form: str | None, encoding: str | None, transform: Transform | None
) -> tuple[Field, ...]:
    each = max(20, PROBED_SAMPLES // len(files))
    samples: list[Mapping[str, Any]] = []
    text_only, problem = True, "no sample"
    for path in files:
        text_only &= (form or form_of(path, encoding=encoding)) == "csv"
        raw = list(islice(read_samples(path, form=form, encoding=encoding), each))
        problem = next((f"{path.name}, {sample.place}: {sample.problem}" for sample in raw if sample.problem), problem)
        samples += [row for sample in raw if sample.fields is not None for row in _rows(sample.fields, transform)]
    if not samples:
        what = f"None of the first {each:,} samples of {', '.join(map(str, files[:3]))} can be used: {problem}."
        raise UnreadableFileError(what, fix="look at the first lines, or name form and encoding")
    return infer_fields(samples, numbers_as_text=text_only and transform is None)


def _rows(sample: dict[str, Any], transform: Transform | None) -> Iterable[Mapping[str, Any]]:
    if transform is None:
        return (sample,)
    made = transform(sample)
    return () if made is None else (made,) if isinstance(made, Mapping) else made


# the work
class _Work:
    """One process' share of a conversion: goes on from `state` and keeps it true on disk."""

    def __init__(self, root: Path, state: Conversion, transform: Transform | None) -> None:
        self.root, self.state, self.transform = root, state, transform
        self.partial = root / PARTIAL
        self.writer: FileWriter | None = None
        self.waiting: list[dict[str, Any]] = []
        self.waiting_bytes = self.shard_bytes = self.shard_rows = 0
        self.known = {field.source for field in state.fields}

    def run(self, files: Sequence[Path], *, form: str | None, encoding: str | None, show_progress: bool) -> None:
        """Convert what is left."""
        self._clear()
        total = sum(size for _, size, _ in self.state.job["files"])
        before = sum(size for _, size, _ in self.state.job["files"][: self.state.file])
        with (
            (self.root / SET_ASIDE).open("ab") as set_aside,
            tqdm(total=total, unit="B", unit_scale=True, desc="MindRecord", disable=not show_progress) as bar,
        ):
            for index in range(self.state.file, len(files)):
                done = before

                def told(read: int, done: int = done) -> None:
                    bar.update(done + read - bar.n)

                skip = self.state.samples_of_file
                for sample in read_samples(files[index], form=form, encoding=encoding, skip=skip, on_progress=told):
                    self._take(sample, index, set_aside)
                self.state.file, self.state.samples_of_file = index + 1, 0
                before += self.state.job["files"][index][1]
                bar.update(before - bar.n)
            self.state.finished = True
            self._finish_shard(set_aside)
        shutil.rmtree(self.partial, ignore_errors=True)

    def _clear(self) -> None:
        """Remove what the last attempt left unfinished."""
        shutil.rmtree(self.partial, ignore_errors=True)
        self.partial.mkdir()
        kept = {shard.name for shard in self.state.shards}
        for path in self.root.glob("*.mindrecord*"):
            if path.name.removesuffix(".db") not in kept:
                path.unlink()
        with (self.root / SET_ASIDE).open("ab") as f:
            f.truncate(self.state.set_aside_bytes)

    def _take(self, sample: RawSample, index: int, set_aside: IO[bytes]) -> None:
        state = self.state
        state.samples_read += 1
        state.samples_of_file += 1
        try:
            rows = self._fitting(sample)
        except Unfit as reason:
            state.samples_set_aside += 1
            record = {"file": state.job["files"][index][0], "place": sample.place, "reason": str(reason)}
            text = sample.text or shown(str(sample.fields))
            set_aside.write(msgspec.json.encode(record | {"text": text}) + b"\n")
            return
        if not rows:
            state.samples_left_out += 1
        self.waiting += rows
        self.waiting_bytes += sum(map(_row_bytes, rows))
        if len(self.waiting) >= ROWS_PER_WRITE or self.waiting_bytes >= BYTES_PER_WRITE:
            self._write()
            if self.shard_bytes >= state.job["shard_bytes"]:
                self._finish_shard(set_aside)

    def _fitting(self, sample: RawSample) -> list[dict[str, Any]]:
        """All rows of a sample, or the reason why it has none."""
        if sample.fields is None:
            raise Unfit(sample.problem)
        rows = []
        for row in _rows(sample.fields, self.transform):
            rows.append(fit(row, self.state.fields))
            if (size := _stored_bytes(rows[-1])) > LARGEST_ROW_BYTES:
                raise Unfit(f"{size:,} bytes; MindRecord's pages hold up to {LARGEST_ROW_BYTES:,}")
            for key in row.keys() - self.known:
                self.state.unknown_keys[key] = self.state.unknown_keys.get(key, 0) + 1
        return rows

    def _write(self) -> None:
        if not self.waiting:
            return
        if self.writer is None:
            name = f"part-{len(self.state.shards):05d}.mindrecord"
            self.writer = FileWriter(str(self.partial / name), shard_num=1, overwrite=True)
            self.writer.add_schema(mindrecord_schema(self.state.fields), "converted by mindspore-workbench")
        with _told(self.root):
            self.writer.write_raw_data(self.waiting)
        self.shard_rows += len(self.waiting)
        self.shard_bytes += self.waiting_bytes
        self.waiting, self.waiting_bytes = [], 0

    def _finish_shard(self, set_aside: IO[bytes]) -> None:
        """Close the shard, move it to its place, and say so in the manifest."""
        self._write()
        if self.writer is not None:
            with _told(self.root):
                self.writer.commit()
            self.writer = None
            name = f"part-{len(self.state.shards):05d}.mindrecord"
            for path in (self.partial / f"{name}.db", self.partial / name):
                _make_durable(path)
                path.replace(self.root / path.name)
            self.state.shards.append(Shard(name=name, rows=self.shard_rows))
            self.state.rows_written += self.shard_rows
        self.shard_rows = self.shard_bytes = 0
        set_aside.flush()
        os.fsync(set_aside.fileno())
        self.state.set_aside_bytes = set_aside.tell()
        write_json_atomic(self.root / MANIFEST, self.state)


@contextmanager
def _told(root: Path) -> Iterator[None]:
    """MindRecord's errors (of several types without a common base) as ours."""
    try:
        yield
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.startswith("[ERROR]")] or [str(error)]
        raise OutputWriteError(
            f"MindRecord cannot write into {root}: {lines[0].removeprefix('[ERROR] ')[:300]}",
            fix="free space on that disk (or check its permissions), then call the same again: it goes on",
        ) from error


def _row_bytes(row: Mapping[str, Any]) -> int:
    return sum(_text_bytes(v) if isinstance(v, str) else getattr(v, "nbytes", 8) for v in row.values())


def _text_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _stored_bytes(row: Mapping[str, Any]) -> int:
    """Size of a row in a page: MindRecord keeps text as JSON, where control characters grow to six bytes."""
    if (size := _row_bytes(row)) * 6 <= LARGEST_ROW_BYTES:
        return size
    return size + sum(len(msgspec.json.encode(v)) - _text_bytes(v) for v in row.values() if isinstance(v, str))


def _make_durable(path: Path) -> None:
    with path.open("rb") as f:
        os.fsync(f.fileno())
