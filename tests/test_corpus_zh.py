"""The Chinese corpus keeps what its README promises: enough text, no text twice."""

import re
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

CHINESE = re.compile("[\u4e00-\u9fff]")  # CJK unified ideographs: characters without punctuation
SENTENCE_END = re.compile("[。！？；…\n]")
README_ROW = re.compile(r"^\| (part_\d+\.txt|all) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|$", re.MULTILINE)


def chinese(text: str) -> str:
    return "".join(CHINESE.findall(text))


def documents(part: Path) -> list[str]:
    return part.read_bytes().decode("utf-8", errors="strict").removesuffix("\n").split("\n====\n")


def sentences(document: str) -> set[str]:
    return {sentence for raw in SENTENCE_END.split(document) if len(sentence := chinese(raw)) >= 15}


def runs(document: str, *, characters: int) -> set[str]:
    text = chinese(document)
    return {text[start : start + characters] for start in range(len(text) - characters + 1)}


def repeated(texts_by_document: list[set[str]]) -> set[str]:
    """The texts that two documents have in common; within one document each text counts once."""
    occurrences = Counter(chain.from_iterable(texts_by_document))
    return {text for text, count in occurrences.items() if count > 1}


@pytest.fixture(scope="module")
def parts(data_samples: Path) -> list[Path]:
    return sorted((data_samples / "corpus_zh").glob("part_*.txt"))


@pytest.fixture(scope="module")
def corpus(parts: list[Path]) -> list[str]:
    return [document for part in parts for document in documents(part)]


def test_every_part_is_plain_utf8_that_ends_with_a_line_end(parts):
    assert [part.name for part in parts] == [f"part_{number}.txt" for number in range(1, 7)]
    for part in parts:
        raw = part.read_bytes()
        assert b"\r" not in raw
        assert not raw.startswith(b"\xef\xbb\xbf")
        assert raw.endswith(b"\n")
        assert "\ufffd" not in raw.decode("utf-8", errors="strict")


def test_there_is_enough_text(corpus):
    assert len(corpus) >= 110
    assert sum(len(chinese(document)) for document in corpus) >= 45_000


def test_every_document_has_the_promised_length(corpus):
    lengths = {document[:12]: len(chinese(document)) for document in corpus}
    assert {start: length for start, length in lengths.items() if not 250 <= length <= 700} == {}
    assert not [document for document in corpus if "====" in document or document != document.strip()]


def test_no_document_occurs_twice(corpus):
    assert len({chinese(document) for document in corpus}) == len(corpus)


def test_no_sentence_occurs_in_two_documents(corpus):
    assert repeated([sentences(document) for document in corpus]) == set()


def test_no_ten_characters_in_a_row_occur_in_two_documents(corpus):
    assert repeated([runs(document, characters=10) for document in corpus]) == set()


def test_a_copied_sentence_would_be_seen():
    sentence = "这一句话一共有十五个汉字那么长"  # 15 characters: 这一句话一/共有十五个/汉字那么长
    twice = [f"开头。{sentence}。", f"另一个开头！{sentence}？"]
    assert repeated([sentences(document) for document in twice]) == {sentence}
    assert repeated([sentences(twice[0] * 2)]) == set()


def test_the_readme_counts_what_is_there(data_samples, parts):
    readme = (data_samples / "corpus_zh" / "README.md").read_text(encoding="utf-8")
    promised = {row[0]: tuple(int(cell.replace(",", "")) for cell in row[1:]) for row in README_ROW.findall(readme)}
    counted = {
        part.name: (len(documents(part)), sum(map(len, map(chinese, documents(part)))), part.stat().st_size)
        for part in parts
    }
    total = tuple(map(sum, zip(*counted.values(), strict=True)))
    assert promised == {**counted, "all": total}
