"""Finding and recognising files: odd names, loops, forbidden directories, speed of the second look."""

import os
import socket
from pathlib import Path

import pytest

from workbench.errors import UnknownContentError
from workbench.readers import discovery
from workbench.readers.discovery import discover, find_files, relative_name
from workbench.readers.kinds import HEAD_BYTES

STEP_TRACE = "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free\n5,10.5,2.5,1.0,3.5,1.25\n"


def write(path: Path, content: str = STEP_TRACE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def test_a_file_is_recognised_by_content_not_by_name(tmp_path):
    write(tmp_path / "renamed.txt")
    found = discover(tmp_path)
    assert [(s.kind, s.tables) for s in found.sources] == [("step_trace_time", ("step_time",))]


def test_links_that_loop_and_dangle_do_no_harm(tmp_path):
    write(tmp_path / "a/step_trace_time.csv")
    (tmp_path / "a/up").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to(tmp_path / "self")
    (tmp_path / "gone.csv").symlink_to(tmp_path / "nothing")
    (tmp_path / "again").symlink_to(tmp_path / "a")
    found = discover(tmp_path)
    assert [relative_name(tmp_path, s.path) for s in found.sources] == ["a/step_trace_time.csv"]
    assert [(n.file, n.problem) for n in found.notes] == [
        ("gone.csv", "The link leads nowhere."),
        ("self", "The link leads nowhere."),
    ]


def test_what_is_no_file_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")  # opening it would block for ever
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(tmp_path / "socket"))
        assert list(find_files(tmp_path, [])) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_forbidden_directory_is_noted(tmp_path):
    write(tmp_path / "a/step_trace_time.csv")
    closed = write(tmp_path / "b/step_trace_time.csv").parent
    closed.chmod(0)
    try:
        found = discover(tmp_path)
    finally:
        closed.chmod(0o700)
    assert len(found.sources) == 1
    assert [(n.file, n.where) for n in found.notes] == [("b", "whole directory")]


def test_an_error_while_looking_is_noted(tmp_path, monkeypatch):
    write(tmp_path / "a/step_trace_time.csv")
    write(tmp_path / "b/step_trace_time.csv")
    real = os.scandir

    def refuse(path):
        if Path(path).name == "b":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(discovery.os, "scandir", refuse)
    found = discover(tmp_path)
    assert len(found.sources) == 1
    assert "Permission denied" in found.notes[0].problem


ODD = ["<script>alert(1)</script>", 'it\'s "quoted"', "two\nlines", "..%2f", "a[1]*?{b}", "名前", " ", "-rf"]


@pytest.mark.parametrize("name", ODD)
def test_odd_names(tmp_path, name):
    write(tmp_path / name / "step_trace_time.csv")
    assert len(discover(tmp_path).sources) == 1
    assert len(discover(tmp_path / name).sources) == 1


def test_a_name_that_is_not_utf8(tmp_path):
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")
    try:
        os.mkdir(folder)
    except OSError:
        pytest.skip("the file system takes UTF-8 names only")
    write(Path(folder) / "step_trace_time.csv")
    assert len(discover(tmp_path).sources) == 1


def test_checkpoints_and_derived_data_are_not_searched(tmp_path):
    for folder in ("checkpoints", ".workbench/parts", "__pycache__"):
        write(tmp_path / folder / "step_trace_time.csv")
    assert discover(tmp_path).sources == []


def test_known_files_are_not_opened_again(tmp_path, monkeypatch):
    write(tmp_path / "step_trace_time.csv")
    (tmp_path / "notes.bin").write_bytes(b"\x00")
    first = discover(tmp_path)
    monkeypatch.setattr(discovery, "ALL_KINDS", ())
    again = discover(tmp_path, known=first.kinds)
    assert again.sources == first.sources
    assert again.unknown == [tmp_path / "notes.bin"]


def test_alike_names_are_still_judged_by_content(tmp_path):
    write(tmp_path / "step_trace_time_0.csv")
    write(
        tmp_path / "step_trace_time_1.csv",
        "Name,Type,Accelerator Core,Start Time(us),Duration(us)\na,b,AI_CORE,1.0,2.0\n",
    )
    assert [s.kind for s in discover(tmp_path).sources] == ["step_trace_time", "kernel_details"]


def test_nothing_there(tmp_path):
    with pytest.raises(UnknownContentError, match="does not exist"):
        discover(tmp_path / "nowhere")


def test_no_kind_fails_on_any_head(tmp_path):
    """Contract of sniffers: they never raise, whatever the bytes."""
    heads = [
        b"",
        b"\x00" * 100,
        os.urandom(4096),
        "中文,表".encode("gbk"),
        b"[" * 5000,
        b"{" * 5000,
        b'"' * 4097,
        b"\xff\xfea\x00",
    ]
    for head in heads:
        for kind in discovery.ALL_KINDS:
            for name in ("x.csv", "x.json", "worker_0.log", "x"):
                assert kind.sniff(tmp_path / name, head[:HEAD_BYTES]) in (True, False)


def test_every_kind_is_declared_well():
    names = [kind.name for kind in discovery.ALL_KINDS]
    assert len(set(names)) == len(names)
    assert all(kind.meaning for kind in discovery.ALL_KINDS)
    assert {t for kind in discovery.ALL_KINDS for t in kind.tables} <= set(discovery.TABLES)
