"""Text that every machine has, in subsets that differ: to rehearse a training and its subset evaluation on.

python: the standard library's sources. english: licence texts and docstrings. arithmetic: generated sums with answers.
chinese: the small corpus that the project ships. A tenth of the documents, chosen by a hash of their id, is held out.
"""

from __future__ import annotations

import ast
import hashlib
import random
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

import numpy as np

from workbench.errors import UnknownParameterError
from workbench.files import share_dir
from workbench.probes.language_model import BEGIN, IGNORED_TARGET, PAD

HELD_OUT_ONE_IN = 10
SHORTEST_DOCUMENT_BYTES = 200
DOCUMENT_BYTES = 3000  # many short documents give narrower intervals than few long ones
MOST_LICENCES = 30


@dataclass(frozen=True, kw_only=True)
class Document:
    """One text of one subset."""

    subset: str
    document_id: str
    text: bytes

    @property
    def is_held_out(self) -> bool:
        """Kept away from training: decided by the id alone, so the same on every machine and in every run."""
        return int(hashlib.blake2b(self.document_id.encode(), digest_size=4).hexdigest(), 16) % HELD_OUT_ONE_IN == 0


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A window of a document: `tokens` predicts `targets`, both of the window's length (padded to it)."""

    subset: str
    sample_id: str
    document_id: str
    tokens: np.ndarray  # int32
    targets: np.ndarray  # int32, IGNORED_TARGET where nothing is scored
    scored_bytes: int
    preview: str


def load_documents(subsets: Sequence[str] | None = None, *, limit_bytes: int = 600_000) -> list[Document]:
    """Documents of the named subsets (all by default), up to about `limit_bytes` of text each.

    Raises:
        UnknownParameterError: there is no such subset.
    """
    names = list(subsets) if subsets is not None else list(SUBSETS)
    if unknown := sorted(set(names) - set(SUBSETS)):
        raise UnknownParameterError(f"There is no text subset {unknown}.", fix=f"use some of {sorted(SUBSETS)}")
    return [document for name in names for document in _limited(SUBSETS[name](), limit_bytes)]


def windows(document: Document, context_length: int) -> list[Sample]:
    """Cut a document into windows in which each byte is predicted exactly once; the last one is padded."""
    stream = np.concatenate(([BEGIN], np.frombuffer(document.text, dtype=np.uint8))).astype(np.int32)
    samples = []
    for start in range(0, len(stream) - 1, context_length):
        piece = stream[start : start + context_length + 1]
        tokens = np.full(context_length, PAD, np.int32)
        targets = np.full(context_length, IGNORED_TARGET, np.int32)
        tokens[: len(piece) - 1], targets[: len(piece) - 1] = piece[:-1], piece[1:]
        samples.append(
            Sample(
                subset=document.subset,
                sample_id=f"{document.document_id}#{start}",
                document_id=document.document_id,
                tokens=tokens,
                targets=targets,
                scored_bytes=len(piece) - 1,
                preview=document.text[start : start + 80].decode("utf-8", "replace"),
            )
        )
    return samples


def held_out_samples(
    documents: Sequence[Document], *, context_length: int, per_subset: int, seed: int = 0
) -> dict[str, list[Sample]]:
    """A fixed sample of held-out windows per subset, spread evenly over its documents.

    Documents take turns in a seeded order, each giving a seeded choice of its windows, until `per_subset` are drawn.

    Raises:
        UnknownParameterError: a subset has no document that is held out.
    """
    chosen: dict[str, list[Sample]] = {}
    for subset in dict.fromkeys(d.subset for d in documents):
        generator = random.Random(f"{seed}:{subset}")
        queues = [windows(d, context_length) for d in documents if d.subset == subset and d.is_held_out]
        if not queues:
            raise UnknownParameterError(
                f"None of the few documents of subset {subset!r} is held out.", fix="take more text (limit_bytes)"
            )
        generator.shuffle(queues)
        for queue in queues:
            generator.shuffle(queue)
        turns = (queue[k] for k in range(max(map(len, queues), default=0)) for queue in queues if k < len(queue))
        chosen[subset] = [sample for sample, _ in zip(turns, range(per_subset), strict=False)]
    return chosen


def fingerprint(documents: Sequence[Document]) -> str:
    """Hash that changes when any document does."""
    digest = hashlib.sha256()
    for document in documents:
        digest.update(document.document_id.encode() + b"\0" + document.text + b"\0")
    return digest.hexdigest()[:16]


def _limited(documents: Iterator[Document], limit_bytes: int) -> Iterator[Document]:
    total = 0
    for document in documents:
        if total >= limit_bytes:
            return
        if len(document.text) >= SHORTEST_DOCUMENT_BYTES:
            total += len(document.text)
            yield document


def _standard_library() -> list[Path]:
    """Source files of the standard library in an order that mixes topics but never changes."""
    root = Path(sysconfig.get_path("stdlib"))
    files = [p for p in root.rglob("*.py") if not {"site-packages", "test", "tests", "idlelib"} & set(p.parts)]
    return sorted(files, key=lambda p: hashlib.md5(p.relative_to(root).as_posix().encode()).digest())


def _python() -> Iterator[Document]:
    root = Path(sysconfig.get_path("stdlib"))
    for path in _standard_library():
        yield Document(
            subset="python",
            document_id=f"python/{path.relative_to(root).as_posix()}",
            text=path.read_bytes()[:DOCUMENT_BYTES],
        )


def _english() -> Iterator[Document]:
    seen: set[bytes] = set()
    for name, text in _licences():
        if text not in seen and len(seen) < MOST_LICENCES:
            seen.add(text)
            yield Document(subset="english", document_id=f"english/{name}", text=text)
    root = Path(sysconfig.get_path("stdlib"))
    for path in _standard_library():
        text = "\n\n".join(_docstrings(path.read_bytes())).encode()
        yield Document(
            subset="english", document_id=f"english/{path.relative_to(root).as_posix()}", text=text[:DOCUMENT_BYTES]
        )


def _licences() -> Iterator[tuple[str, bytes]]:
    for distribution in sorted(distributions(), key=lambda d: str(d.metadata["Name"]).lower()):
        for file in distribution.files or ():
            if file.name.upper().startswith(("LICENSE", "LICENCE", "COPYING")):
                path = Path(str(distribution.locate_file(file)))
                if path.is_file():
                    yield f"licence/{distribution.metadata['Name']}/{file.name}", path.read_bytes()[:DOCUMENT_BYTES]


def _docstrings(source: bytes) -> Iterator[str]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # files for other Python versions
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node)
            if text and len(text) > 80:
                yield text


def _arithmetic() -> Iterator[Document]:
    for number in range(2000):
        generator = random.Random(number)
        lines = "\n".join(_sum(generator) for _ in range(40))
        yield Document(subset="arithmetic", document_id=f"arithmetic/{number}", text=lines.encode())


def _sum(generator: random.Random) -> str:
    left, right = generator.randint(0, 99), generator.randint(0, 99)
    sign, result = generator.choice([("+", left + right), ("-", left - right)])
    return f"{left} {sign} {right} = {result}"


def _chinese() -> Iterator[Document]:
    for path in sorted((share_dir() / "data_samples" / "corpus_zh").glob("*.txt")):
        for number, text in enumerate(path.read_text(encoding="utf-8").split("\n====\n")):
            yield Document(subset="chinese", document_id=f"chinese/{path.stem}/{number}", text=text.strip().encode())


SUBSETS: dict[str, Callable[[], Iterator[Document]]] = {
    "python": _python,
    "english": _english,
    "arithmetic": _arithmetic,
    "chinese": _chinese,
}
