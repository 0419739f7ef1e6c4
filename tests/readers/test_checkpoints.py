"""Which files of a run are checkpoints, and which step each holds."""

import json
import os
from pathlib import Path

import pytest

from workbench.errors import CheckpointError, UnknownContentError, UnreadableFileError
from workbench.files import append_json_lines
from workbench.readers.checkpoints import (
    checkpoint_directory,
    choose_checkpoint,
    find_checkpoints,
    step_from_name,
    training_ended,
)


def _run(tmp_path: Path, files: dict[str, int], **info: object) -> Path:
    """A run whose checkpoint files were written at the given seconds."""
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "run.json").write_text(json.dumps({"schema": 1, "run_id": "r", **info}))
    for name, seconds in files.items():
        path = tmp_path / "checkpoints" / name
        path.write_bytes(b"x")
        os.utime(path, (seconds, seconds))
    return tmp_path


def test_only_final_names_count(tmp_path):
    names = [
        "m-1_2.ckpt",
        "m-1_4.tmp",
        ".tmpab12.safetensors",
        "m-graph.meta",
        "m-1_3_breakpoint.ckpt",
        "m-1_6.safetensors",
    ]
    run = _run(tmp_path, dict.fromkeys(names, 100))
    assert [c.path.name for c in find_checkpoints(run)] == ["m-1_2.ckpt", "m-1_6.safetensors"]


def test_folders_and_dead_links_are_no_checkpoints(tmp_path):
    run = _run(tmp_path, {"m-1_2.ckpt": 100})
    (run / "checkpoints/folder-1_3.ckpt").mkdir()
    (run / "checkpoints/link-1_4.ckpt").symlink_to(run / "nowhere")
    assert [c.name for c in find_checkpoints(run)] == ["m-1_2"]


def test_a_folder_name_that_cannot_be_is_a_problem_with_a_fix(tmp_path):
    with pytest.raises(UnreadableFileError, match="cannot be listed: embedded null byte"):
        find_checkpoints(_run(tmp_path, {}, checkpoint_dir="a\0b"))


def test_one_stem_in_both_formats_is_one_checkpoint(tmp_path):
    run = _run(tmp_path, {"m-1_2.ckpt": 100, "m-1_2.safetensors": 100})
    assert [c.path.name for c in find_checkpoints(run)] == ["m-1_2.ckpt"]


def test_steps_order_numerically_over_epochs(tmp_path):
    run = _run(tmp_path, {"m-2_3.ckpt": 1, "m-1_10.ckpt": 2, "m-1_9.ckpt": 3}, steps_per_epoch=10)
    # Epoch 2, step 3 with 10 steps per epoch: (2 - 1) * 10 + 3 = 13.
    assert [(c.name, c.step) for c in find_checkpoints(run)] == [("m-1_9", 9), ("m-1_10", 10), ("m-2_3", 13)]


def test_the_recorder_knows_better_than_the_name(tmp_path):
    run = _run(tmp_path, {"m-2_3.ckpt": 1, "m-1_10.ckpt": 2})
    events = [
        {"kind": "checkpoint", "start_ns": 1, "name": "m-2_3.ckpt", "step": 503},
        {"kind": "checkpoint", "start_ns": 2, "name": "checkpoints/m-1_10.ckpt", "step": 500},
    ]
    append_json_lines(run / "events" / "rank_0.jsonl", events)
    assert [(c.name, c.step) for c in find_checkpoints(run)] == [("m-1_10", 500), ("m-2_3", 503)]


def test_without_steps_the_time_of_writing_orders(tmp_path):
    run = _run(tmp_path, {"a.ckpt": 30, "b.ckpt": 10, "m-1_2.ckpt": 20})
    assert [(c.name, c.step) for c in find_checkpoints(run)] == [("b", None), ("m-1_2", 2), ("a", None)]


@pytest.mark.parametrize(
    ("stem", "per_epoch", "step"),
    [("m-1_7", None, 7), ("m-3_7", None, None), ("m-3_7", 100, 207), ("m_1-3_7", 100, 207), ("best", 100, None)],
)
def test_step_from_name(stem, per_epoch, step):
    assert step_from_name(stem, per_epoch) == step


def test_configured_directory_and_rank_folder(tmp_path):
    (tmp_path / "saved" / "rank_0").mkdir(parents=True)
    (tmp_path / "saved" / "rank_0" / "m-1_5.ckpt").write_bytes(b"x")
    (tmp_path / "run.json").write_text(json.dumps({"run_id": "r", "checkpoint_dir": "saved"}))
    assert checkpoint_directory(tmp_path) == tmp_path / "saved"
    assert [c.step for c in find_checkpoints(tmp_path)] == [5]


def test_no_checkpoints_yet_is_empty_and_no_run_is_an_error(tmp_path):
    assert find_checkpoints(tmp_path) == []
    with pytest.raises(UnknownContentError, match="not a directory"):
        find_checkpoints(tmp_path / "absent")


def test_choose_by_name_stem_path_or_step(tmp_path):
    checkpoints = find_checkpoints(_run(tmp_path, {"m-1_2.ckpt": 1, "m-1_4.ckpt": 2}))
    assert choose_checkpoint(checkpoints, None).step == 4
    for asked in ("m-1_2", "m-1_2.ckpt", "/elsewhere/m-1_2.ckpt", "2"):
        assert choose_checkpoint(checkpoints, asked).step == 2
    with pytest.raises(CheckpointError, match=r"use one of: m-1_2, m-1_4"):
        choose_checkpoint(checkpoints, "m-1_3")
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        choose_checkpoint([], None)


def test_a_run_that_was_started_again_has_not_ended(tmp_path):
    events = tmp_path / "events" / "rank_0.jsonl"
    assert not training_ended(tmp_path)
    append_json_lines(events, [{"kind": "start", "start_ns": 1}, {"kind": "end", "start_ns": 2}])
    assert training_ended(tmp_path)
    append_json_lines(events, [{"kind": "start", "start_ns": 3}])
    assert not training_ended(tmp_path)


def test_torn_and_garbled_events_are_passed_over(tmp_path):
    events = tmp_path / "events" / "rank_0.jsonl"
    events.parent.mkdir()
    events.write_bytes(b'{"kind": "gc"}\n{"kind": "end", \xff\n{"kind": "start", "start_ns": 1}\n["end"]\n{"kind": "en')
    assert not training_ended(tmp_path)
    append_json_lines(events, [{"kind": "end", "start_ns": 2}])
    assert training_ended(tmp_path)
