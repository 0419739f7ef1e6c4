"""Text -> counts of tokens: all, unknown, and single bytes of characters that the vocabulary lacks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from workbench.errors import MissingExtraError, UnknownParameterError, UnreadableFileError

BYTES = "bytes"  # instead of a tokenizer file: every byte is a token
_FALLBACK = re.compile(r"<0x[0-9A-Fa-f]{2}>")


class TokenCounts(NamedTuple):
    """Tokens of one text."""

    tokens: int
    unknown: int
    single_bytes: int


class TokenCounter(Protocol):
    """Counts the tokens of a text."""

    def __call__(self, text: str) -> TokenCounts:
        """Counts of `text`."""
        ...


def token_counter(tokenizer: object) -> TokenCounter:
    """How to count the tokens of a text.

    Args:
        tokenizer: the word "bytes", the path of a `tokenizer.json`, or a `tokenizers.Tokenizer`.

    Raises:
        UnreadableFileError: the file is no tokenizer.
        MissingExtraError: a file is named and the package `tokenizers` is not installed.
        UnknownParameterError: it is neither.
    """
    if tokenizer == BYTES:
        return _count_bytes
    if isinstance(tokenizer, str | Path):
        tokenizer = _loaded(Path(tokenizer))
    if not all(hasattr(tokenizer, name) for name in ("encode", "get_vocab")):
        raise UnknownParameterError(
            f"A {type(tokenizer).__name__} is no tokenizer.",
            fix="give the path of a tokenizer.json, a tokenizers.Tokenizer, or the word bytes",
        )
    return _Counter(tokenizer)


def _count_bytes(text: str) -> TokenCounts:
    return TokenCounts(len(text.encode("utf-8", "surrogatepass")), 0, 0)


def _loaded(path: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingExtraError(
            "Reading a tokenizer file needs the package tokenizers.",
            fix="pip install 'mindspore-workbench[tokenizers]'",
        ) from None
    if not path.is_file():
        raise UnreadableFileError(f"{path} does not exist.", fix="name a tokenizer.json, or the word bytes")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001  (the package raises plain Exception)
        raise UnreadableFileError(
            f"{path} is no tokenizer file: {error}.", fix="name the tokenizer.json that training uses"
        ) from None


class _Counter:
    """Counts by the ids of the vocabulary, found once."""

    def __init__(self, tokenizer: Any) -> None:
        self.encode = tokenizer.encode
        vocabulary: dict[str, int] = tokenizer.get_vocab()
        unknown = getattr(getattr(tokenizer, "model", None), "unk_token", None)
        self.unknown = {vocabulary[unknown]} if unknown in vocabulary else set()
        fallback = {i for token, i in vocabulary.items() if _FALLBACK.fullmatch(token)}
        is_byte_level = "ByteLevel" in str(getattr(tokenizer, "pre_tokenizer", ""))
        self.single_bytes = fallback | (
            {vocabulary[c] for c in _high_bytes() if c in vocabulary} if is_byte_level else set()
        )

    def __call__(self, text: str) -> TokenCounts:
        ids = self.encode(text, add_special_tokens=False).ids
        unknown = sum(i in self.unknown for i in ids) if self.unknown else 0
        single = sum(i in self.single_bytes for i in ids) if self.single_bytes else 0
        return TokenCounts(len(ids), unknown, single)


def _high_bytes() -> list[str]:
    """The letters by which byte-level BPE writes the bytes from 0x80 on: bytes of characters beyond ASCII.

    Printable Latin-1 stands for itself; the other bytes, in order, follow from U+0100 on (GPT-2's encoder).
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(0x100) if b not in printable]
    letters = {b: chr(b) for b in printable} | {b: chr(0x100 + n) for n, b in enumerate(others)}
    return [letters[b] for b in range(0x80, 0x100)]
