import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import UnreadableFileError
from workbench.readers import log_lines
from workbench.readers.log_lines import LogLines
from workbench.readers.log_notes import NoteBook


def read(path, data: bytes, wanted: str = "loss"):
    path.write_bytes(data)
    notes = NoteBook("log")
    return list(LogLines(path, wanted, notes)), [str(n) for n in notes.notes()]


def test_only_wanted_lines_with_their_numbers(tmp_path):
    lines, notes = read(tmp_path / "a", b"x\nloss 1\r\ny\nloss 2\n")
    assert lines == [(2, "loss 1", True), (4, "loss 2", True)]
    assert not notes


def test_last_line_without_end_is_marked(tmp_path):
    assert read(tmp_path / "a", b"loss 1\nloss 2")[0] == [(1, "loss 1", True), (2, "loss 2", False)]


def test_states_of_a_progress_bar_share_their_line(tmp_path):
    lines, _ = read(tmp_path / "a", b"x\n 1%\r 2%\r{'loss': 1}\rdone\n")
    assert [(n, t) for n, t, _ in lines] == [(2, " 1%"), (2, " 2%"), (2, "{'loss': 1}"), (2, "done")]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_encodings_with_and_without_mark(tmp_path, encoding):
    text = "начало\nloss 1 中\n" if encoding.startswith("utf-8") else "start of the log\nloss 1 中\n"
    lines, notes = read(tmp_path / "a", text.encode(encoding))
    assert lines == [(2, "loss 1 中", True)]
    assert not notes


def test_gbk_is_read_and_noted(tmp_path):
    lines, notes = read(tmp_path / "a", "损失 loss 1 完成\n".encode("gbk"))
    assert lines[0].text == "损失 loss 1 完成"
    assert "GBK" in notes[0]


def test_damaged_byte_does_not_swallow_its_neighbour(tmp_path):
    lines, notes = read(tmp_path / "a", "训练 \xe5".encode()[:-2] + b"\xe5loss 1\n")
    assert lines[0].text.endswith("loss 1")
    assert "line 1" in notes[0]


def test_colours_and_nul_bytes_are_left_out(tmp_path):
    lines, notes = read(tmp_path / "a", b"a\n\x1b[32mlo\0ss\x1b[0m 1\n")
    assert lines == [(2, "loss 1", True)]
    assert "NUL" in notes[0]
    assert "line 2" in notes[0]


def test_missing_file_says_so(tmp_path):
    with pytest.raises(UnreadableFileError):
        list(LogLines(tmp_path / "none", "loss", NoteBook("log")))


def test_last_timed_line_is_remembered(tmp_path):
    (tmp_path / "a").write_bytes(b"2025-05-11 09:12:03,118 hello\nnothing\n")
    lines = LogLines(tmp_path / "a", "loss", NoteBook("log"))
    assert list(lines) == []
    assert lines.last_timed is not None
    assert lines.last_timed.number == 1


@given(
    st.lists(st.sampled_from(["loss 1", "other", "", "loss 中", "x" * 70]), max_size=30),
    st.integers(min_value=1, max_value=200),
)
def test_chunk_size_changes_nothing(tmp_path_factory, texts, size):
    data = "".join(t + "\n" for t in texts).encode()
    path = tmp_path_factory.mktemp("chunks") / "a"
    whole, _ = read(path, data)
    before, log_lines.CHUNK_BYTES = log_lines.CHUNK_BYTES, size
    try:
        assert read(path, data)[0] == whole
    finally:
        log_lines.CHUNK_BYTES = before
    assert [(n, t) for n, t, _ in whole] == [(i, t) for i, t in enumerate(texts, 1) if "loss" in t]
