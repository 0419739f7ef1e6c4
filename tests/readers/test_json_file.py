"""JSON files in every state."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import UnreadableFileError
from workbench.readers.json_file import read_json
from workbench.readers.kinds import FileContext

OPS = {"step1": {"collective": {"a@1": {"ms": 1.5, "x": [1, 2]}, "b@1": {"ms": 2.5}, "c@1": {"ms": 3.5}}}}
TEXT = json.dumps(OPS)


def read(tmp_path: Path, content: str | bytes, **options):
    path = tmp_path / "f.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_json(path, FileContext(root=tmp_path), **options)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_whole_file(tmp_path, encoding):
    assert read(tmp_path, TEXT.encode(encoding)) == (OPS, [])


def test_nan_of_python_is_null(tmp_path):
    assert read(tmp_path, '{"a": NaN, "b": [Infinity, 1]}') == ({"a": None, "b": [None, 1]}, [])


def test_cut_file_gives_the_members_before_the_cut(tmp_path):
    cut = TEXT[: TEXT.index("3.5") + 1]  # 3 of 3.5: the number may not be used
    value, notes = read(tmp_path, cut)
    assert value["step1"]["collective"] == {"a@1": {"ms": 1.5, "x": [1, 2]}, "b@1": {"ms": 2.5}, "c@1": {}}
    assert f"byte {len(cut)}" in notes[0].where


def test_damaged_member_alone_is_lost(tmp_path):
    value, notes = read(tmp_path, TEXT.replace("2.5", "2x5"))
    assert value["step1"]["collective"] == {**OPS["step1"]["collective"], "b@1": {}}
    assert len(notes) == 1
    assert f"byte {TEXT.index('2.5') + 1}" == notes[0].where


def test_several_damages_are_noted_at_their_bytes(tmp_path):
    value, notes = read(tmp_path, TEXT.replace("1.5", "1?5").replace("3.5", "?.5"))
    assert value["step1"]["collective"] == {"a@1": {"x": [1, 2]}, "b@1": {"ms": 2.5}, "c@1": {}}
    assert [n.where for n in notes] == [f"byte {TEXT.index('1.5') + 1}", f"byte {TEXT.index('3.5')}"]


@pytest.mark.parametrize("content", ["", "hello", "\0\1", "{", "[", "[" * 100_000, '{"a'])
def test_what_holds_nothing_is_an_error_with_a_fix(tmp_path, content):
    with pytest.raises(UnreadableFileError, match="Fix:"):
        read(tmp_path, content)


def test_outermost_type_is_checked(tmp_path):
    with pytest.raises(UnreadableFileError, match="JSON list"):
        read(tmp_path, "[1]", expect=dict)
    assert read(tmp_path, "{}").value == {}


def test_lone_surrogate_is_replaced(tmp_path):
    assert read(tmp_path, r'{"a": "\ud83d x", "b": "\ud83d\ude00"}').value == {"a": "\ufffd x", "b": "\U0001f600"}


@given(cut=st.integers(0, len(TEXT) - 1))
def test_every_cut_is_noted_and_invents_nothing(tmp_path_factory, cut):
    try:
        value, notes = read(tmp_path_factory.mktemp("cut"), TEXT[:cut])
    except UnreadableFileError:
        return
    assert notes
    for name, op in value["step1"].get("collective", {}).items():
        whole = OPS["step1"]["collective"][name]
        assert all(v == whole[k] for k, v in op.items())
