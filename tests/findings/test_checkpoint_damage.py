"""Damaged checkpoints: real files, cut and filled, and log lines in the words of MindSpore, safetensors and torch."""

import os
import zipfile
from pathlib import Path

import pytest

import workbench as wb
from tests.log_text import write_logs
from tests.rendered_logs import mindformers, series, warning
from workbench.findings.checkpoint_damage import find_checkpoint_corrupt
from workbench.findings.checks import examine
from workbench.readers.checkpoint_health import read_checkpoint_files

SAMPLES = Path(__file__).parents[2] / "data_samples" / "checkpoints"
CKPT = (SAMPLES / "tiny-1_2.ckpt").read_bytes()  # 382 bytes, the last record begins at 355
TENSORS = (SAMPLES / "tiny-1_4.safetensors").read_bytes()
NOW_S = 1_800_000_000
HOUR_S = 3600


def put(root, name, content, *, age_s=HOUR_S):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (NOW_S - age_s, NOW_S - age_s))


def found(root, **tables):
    others = [p for p in sorted(root.rglob("*")) if p.is_file() and "checkpoints" not in p.relative_to(root).parts[:1]]
    files = read_checkpoint_files(root, others)
    return find_checkpoint_corrupt({"checkpoint_files": files, **tables}, now_ns=NOW_S * 10**9)


def facts(finding):
    return {e.fact: e.value for e in finding.evidence}


def test_a_cut_last_checkpoint_names_the_one_to_resume_from(tmp_path):
    put(tmp_path, "checkpoints/m-1_100.ckpt", CKPT, age_s=3 * HOUR_S)
    put(tmp_path, "checkpoints/m-1_200.ckpt", CKPT, age_s=2 * HOUR_S)
    put(tmp_path, "checkpoints/m-1_300.ckpt", CKPT[:370])
    (one,) = found(tmp_path)
    assert (one.cause, one.sub_cause, one.severity, one.confidence) == (
        "checkpoint_corrupt", "cut_short", "warning", "high",
    )  # fmt: skip
    assert one.title.startswith("The last checkpoint checkpoints/m-1_300 (step 300) is damaged: ")
    assert one.title.endswith("the last whole one is checkpoints/m-1_200 (step 200).")
    assert one.steps.first == 300
    known = facts(one)
    assert known["steps to train again"] == 300 - 200
    assert known["size of whole files of the series"] == 382
    assert known["size that the file would have at least"] == 382  # 355 + key and length (2) + 25 bytes
    assert [e.value for e in one.evidence if e.unit == "B found"] == [370]
    assert one.fix.startswith("Resume from checkpoints/m-1_200 (step 200), move checkpoints/m-1_300.ckpt away")


def test_whole_checkpoints_are_healthy(tmp_path):
    put(tmp_path, "checkpoints/m-1_100.ckpt", CKPT)
    put(tmp_path, "checkpoints/m-1_200.safetensors", TENSORS)
    put(tmp_path, "checkpoints/crc-1_2.ckpt", (SAMPLES / "tiny_crc-1_2.ckpt").read_bytes())
    assert found(tmp_path) == []


def test_a_file_that_is_being_written_is_not_accused(tmp_path):
    put(tmp_path, "checkpoints/m-1_100.ckpt", CKPT)
    put(tmp_path, "checkpoints/m-1_200.ckpt", CKPT[:370], age_s=30)
    put(tmp_path, "checkpoints/.m-1_300.ckpt", CKPT[:100])
    put(tmp_path, "checkpoints/m-1_300.ckpt.tmp", CKPT[:100])
    put(tmp_path, "checkpoints/tmp_m-1_300.ckpt", CKPT[:100])
    put(tmp_path, "checkpoints/m-1_250_breakpoint.ckpt", CKPT[:100])
    put(tmp_path, "checkpoints/from_the_future-1_1.ckpt", CKPT[:100], age_s=-90)  # clocks of hosts differ
    assert found(tmp_path) == []


def test_a_later_checkpoint_shows_that_writing_is_over(tmp_path):
    put(tmp_path, "checkpoints/m-1_100.ckpt", b"", age_s=60)
    put(tmp_path, "checkpoints/m-1_200.ckpt", CKPT, age_s=30)
    assert found(tmp_path) == []  # perhaps copied side by side
    put(tmp_path, "checkpoints/m-1_100.ckpt", b"", age_s=120)
    (one,) = found(tmp_path)
    assert one.title.startswith("Checkpoint checkpoints/m-1_100 (step 100) is damaged: The file is empty;")
    assert one.title.endswith("the last whole one is checkpoints/m-1_200 (step 200).")
    assert "steps to train again" not in facts(one)


@pytest.mark.parametrize(
    ("name", "content", "words", "least"),
    [
        ("m-1_4.safetensors", TENSORS[:-8], "bytes that its header names", len(TENSORS)),
        ("m-1_4.safetensors", b"\0" * 200, "begins with zeros", None),
        ("m-1_4.safetensors", TENSORS + b"x", "1 bytes follow the last tensor", None),
        ("m-1_4.safetensors", b"version https://git-lfs.github.com/spec/v1\noid", "was never fetched", None),
        ("checkpoint-4/pytorch_model.bin", b"PK\x03\x04" + b"x" * 500, "no directory at its end", None),
    ],
)  # fmt: skip
def test_what_is_wrong_with_the_only_checkpoint(tmp_path, name, content, words, least):
    put(tmp_path, f"checkpoints/{name}", content)
    (one,) = found(tmp_path)
    assert one.severity == "critical"
    assert words in one.title
    assert one.title.endswith("no other checkpoint is whole.")
    assert one.steps.first == 4
    assert facts(one).get("size that the file would have at least") == least


def test_formats_that_are_not_known_are_not_judged(tmp_path):
    put(tmp_path, "checkpoints/encrypted.ckpt", b"\x8f\x11" * 300)
    put(tmp_path, "checkpoints/legacy_checkpoint.pt", b"\x80\x02}q\x00." * 30)
    put(tmp_path, "data/train.bin", b"")  # no checkpoint by its name
    with zipfile.ZipFile(tmp_path / "checkpoints/lightning.ckpt", "w") as whole:
        whole.writestr("data.pkl", "x")
    assert found(tmp_path) == []
    assert read_checkpoint_files(tmp_path)["file"].tolist() == ["checkpoints/lightning.ckpt"]


def test_bytes_of_no_format_among_checkpoints_of_mindspore_are_damage(tmp_path):
    noise = b"\x8f\x11" * 300
    put(tmp_path, "checkpoints/m-1_100.ckpt", CKPT, age_s=3 * HOUR_S)
    put(tmp_path, "checkpoints/m-1_200.ckpt", noise, age_s=2 * HOUR_S)
    (one,) = found(tmp_path)
    assert (one.sub_cause, one.confidence, one.steps.first) == ("garbled", "high", 200)
    for mark in (b"\xd8\x5e\x3a\x7f", b"\xd9\x5e\x3a\x7f", b"\xda\x5e\x3a\x7f", b"\x80\x02}q"):  # encrypted, torch
        put(tmp_path, "checkpoints/m-1_200.ckpt", mark + noise, age_s=2 * HOUR_S)
        assert found(tmp_path) == []
    put(tmp_path, "checkpoints/m-1_200.ckpt", noise)
    put(tmp_path, "checkpoints/m-1_100.ckpt", noise)  # all of them: a format that is not known
    assert found(tmp_path) == []


def test_a_missing_shard_of_a_counted_set(tmp_path):
    for step, numbers in ((500, (1, 2, 3)), (1000, (1, 3))):
        for n in numbers:
            put(tmp_path, f"out/checkpoint-{step}/model-0000{n}-of-00003.safetensors", TENSORS, age_s=9000 - step)
    (one,) = found(tmp_path)
    assert (one.sub_cause, one.confidence) == ("shards_missing", "medium")
    for step in (500, 1000):  # nowhere here: perhaps on another node
        put(tmp_path, f"there/checkpoint-{step}/model-00001-of-00002.safetensors", TENSORS, age_s=9000 - step)
    assert found(tmp_path / "there") == []
    assert one.title == (
        "The last checkpoint out/checkpoint-1000 (step 1000) lacks 1 shard(s): 2 of 3; the last whole one is "
        "out/checkpoint-500 (step 500)."
    )


def test_a_rank_that_did_not_save_the_last_checkpoint(tmp_path):
    for rank in range(3):
        for step in (10, 20, 30):
            if (rank, step) != (2, 30):
                put(tmp_path, f"output/rank_{rank}/net_rank_{rank}-1_{step}.ckpt", CKPT, age_s=9000 - step)
    (one,) = found(tmp_path)
    assert "output/rank_*/rank_*-1_30 (step 30) lacks 1 shard(s): rank_2;" in one.title
    (tmp_path / "output/rank_2/net_rank_2-1_10.ckpt").unlink()  # the oldest may be on its way out
    put(tmp_path, "output/rank_2/net_rank_2-1_30.ckpt", CKPT, age_s=8000)
    assert found(tmp_path) == []


def test_a_rank_that_is_missing_in_the_last_of_two_checkpoints(tmp_path):
    def saved(root, first, last):
        for step, ranks in ((10, first), (20, last)):
            for rank in ranks:
                put(root, f"rank_{rank}/net_rank_{rank}-1_{step}.ckpt", CKPT, age_s=9000 - step)
        return [f.title.split(";")[0] for f in found(root)]

    assert saved(tmp_path / "gap", range(12), (0, 1, 3, 4, 5, 6, 7, 8, 9, 11)) == [
        "The last checkpoint rank_*/rank_*-1_20 (step 20) lacks 2 shard(s): rank_2, rank_10"
    ]
    assert saved(tmp_path / "smaller", range(4), range(2)) == []  # the job may have become smaller
    assert saved(tmp_path / "larger", range(2), range(4)) == []
    assert saved(tmp_path / "on_its_way_out", (1, 3), range(4)) == []


def test_a_damaged_shard_names_its_rank(tmp_path):
    for rank in range(2):
        put(tmp_path, f"output/rank_{rank}/net_rank_{rank}-1_30.ckpt", CKPT if rank == 0 else CKPT[:100])
    (one,) = found(tmp_path)
    assert one.culprit.rank == 1
    assert "is damaged in 1 of its 2 files" in one.title


def test_a_single_file_that_is_diagnosed_has_no_checkpoints(tmp_path):
    folder = write_logs(tmp_path, {"worker_0.log": log()})
    put(folder, "checkpoints/m-1_100.ckpt", b"")
    assert not any(f.cause == "checkpoint_corrupt" for f in wb.diagnose(folder / "worker_0.log").causes)
    assert read_checkpoint_files(folder / "worker_0.log").empty


def log(*lines, steps=30):
    frame = series(range(1, steps + 1), loss=3.0)
    return mindformers(frame, planned=100) + "".join(lines)


def diagnosed(folder, *lines):
    causes = wb.diagnose(write_logs(folder, {"worker_0.log": log(*lines)})).causes
    return [f for f in causes if f.cause == "checkpoint_corrupt"]


@pytest.mark.parametrize(
    ("line", "sub_cause", "confidence", "severity"),
    [
        ("ValueError: Failed to read the checkpoint file /a/net-1_30.ckpt. The file may be corrupted, and the content "
         "cannot be parsed.", "read_failed", "high", "critical"),
        ("ValueError: For 'load_checkpoint', the crc check is failed, please check whether the ckpt file is damaged.",
         "read_failed", "high", "critical"),
        ("safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
         "read_failed", "high", "critical"),
        ("RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
         "read_failed", "high", "critical"),
        ("_pickle.UnpicklingError: invalid load key, '\\x00'.", "read_failed", "medium", "warning"),
        ("ValueError: Failed to read the checkpoint file /a/net-1_30.ckpt. May not have permission to read it, please "
         "check the correct of the file.", "read_failed", "medium", "warning"),
        ("OSError: [Errno 28] No space left on device: '/a/net-1_30.ckpt'", "disk_full", "high", "warning"),
        ("RuntimeError: [enforce fail at inline_container.cc:471] . PytorchStreamWriter failed writing file data/3: "
         "file write failed", "save_failed", "high", "warning"),
    ],
)  # fmt: skip
def test_lines_of_logs(tmp_path, line, sub_cause, confidence, severity):
    (one,) = diagnosed(tmp_path, line + "\n")
    assert (one.sub_cause, one.confidence, one.severity) == (sub_cause, confidence, severity)
    assert ("/a/net-1_30.ckpt" in one.title) == ("/a/net-1_30.ckpt" in line)
    assert one.evidence[0].where == "worker_0.log, line 31"


def test_a_full_disk_explains_a_save_that_failed(tmp_path):
    critical = warning(
        99, "Failed to save the checkpoint file /a/net-1_30.ckpt. Maybe don't have the permission to write files, or "
        "the disk space is insufficient and so on.", level="CRITICAL", module="ME",
    )  # fmt: skip
    (one,) = diagnosed(tmp_path / "a", critical)
    assert (one.sub_cause, one.confidence) == ("save_failed", "medium")
    assert any(e.fact.startswith("not known: whether the file itself is damaged") for e in one.evidence)
    (one,) = diagnosed(tmp_path / "b", critical, "OSError: [Errno 28] No space left on device\n")
    assert (one.sub_cause, one.confidence) == ("disk_full", "high")
    assert one.title == (
        "Checkpoint /a/net-1_30.ckpt could not be written: the disk is full; what lies there is half-written."
    )


CRC = """\
[ERROR] ME(3285:139949210626944,MainProcess):2025-05-11-10:30:42.830.000 [mindspore/train/serialization.py:1719] \
Failed to read the checkpoint file runs/crc-1_2.ckpt. May not have permission to read it, please check the correct of \
the file.
Traceback (most recent call last):
ValueError: For 'load_checkpoint', the crc check is failed, please check whether the ckpt file is damaged.

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
ValueError: Failed to read the checkpoint file runs/crc-1_2.ckpt. May not have permission to read it, please check the \
correct of the file.
"""
SAFETENSORS = """\
Traceback (most recent call last):
ValueError: SafeTensorError::MetadataIncompleteBuffer

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
ValueError: Fail to parse the input safetensors: 'runs/cut-1_4.safetensors'. Please check the correctness of the file.
"""
FULL = """\
[CRITICAL] ME(3285:140692024511360,MainProcess):2025-05-11-10:31:14.864.000 [mindspore/train/serialization.py:475] \
Failed to save the checkpoint file runs/a-1_2.ckpt. Maybe don't have the permission to write files, or the disk space \
is insufficient and so on.
Traceback (most recent call last):
OSError: [Errno 28] No space left on device
"""


@pytest.mark.parametrize(
    ("lines", "sub_cause", "file"),
    [(CRC, "read_failed", "runs/crc-1_2.ckpt"), (SAFETENSORS, "read_failed", "runs/cut-1_4.safetensors"),
     (FULL, "disk_full", "runs/a-1_2.ckpt")],
)  # fmt: skip
def test_what_mindspore_prints_of_real_damage(tmp_path, lines, sub_cause, file):
    """MindSpore 2.10 on the samples, one byte flipped or eight cut off, and on a disk of 64 KiB; frames left out."""
    (one,) = diagnosed(tmp_path, lines)
    assert (one.sub_cause, one.confidence) == (sub_cause, "high")
    assert one.title.startswith(f"Checkpoint {file} could not be ")
    assert len([e for e in one.evidence if e.fact.endswith("a checkpoint failed")]) == 1


@pytest.mark.parametrize(
    "line",
    [
        "OSError: [Errno 28] No space left on device: '/dev/shm/queue'",
        "FileNotFoundError: [Errno 2] No such file or directory: '/a/net-1_30.ckpt'",
        "RuntimeError: PytorchStreamReader failed locating file data.pkl: file not found",
        "ValueError: Failed to load the tokenizer",
    ],
)
def test_other_failures_are_no_damage(tmp_path, line):
    assert diagnosed(tmp_path, line + "\n") == []


def test_whole_checkpoints_clear_the_cause_and_none_leave_it_open(tmp_path):
    folder = write_logs(tmp_path, {"worker_0.log": log()})
    put(folder, "checkpoints/net-1_30.ckpt", CKPT)
    recorded = examine(folder).recorded
    assert "checkpoint_files" in recorded.columns
    (folder / "checkpoints/net-1_30.ckpt").unlink()
    assert "checkpoint_files" not in examine(folder).recorded.columns
