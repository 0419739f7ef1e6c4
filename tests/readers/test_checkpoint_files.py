"""Structure of checkpoint files: real ones, and what cuts, fillings and flips make of them."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench.readers.checkpoint_files import find_damage

SAMPLES = Path(__file__).parents[2] / "data_samples" / "checkpoints"
CKPT = SAMPLES / "tiny-1_2.ckpt"
CKPT_CRC = SAMPLES / "tiny_crc-1_2.ckpt"
SAFETENSORS = SAMPLES / "tiny-1_4.safetensors"
# Record ends of tiny-1_2.ckpt, counted in a hex dump: key and length bytes, then 174, 79, 39, 54 and 25 bytes.
RECORD_ENDS = (177, 177 + 81, 177 + 81 + 41, 177 + 81 + 41 + 56, 177 + 81 + 41 + 56 + 27)


def _write(folder: Path, content: bytes, like: Path) -> Path:
    path = folder / like.name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("path", [CKPT, CKPT_CRC, SAFETENSORS], ids=lambda p: p.name)
def test_whole_files_have_no_damage(path):
    assert find_damage(path) is None


def test_the_checksum_of_a_large_file_can_be_left_out(tmp_path):
    content = bytearray(CKPT_CRC.read_bytes())
    content[60] ^= 1  # inside a parameter: the structure stays whole
    flipped = _write(tmp_path, bytes(content), CKPT_CRC)
    assert find_damage(flipped, checksum_bytes=len(content)).kind == "garbled"
    assert find_damage(flipped, checksum_bytes=len(content) - 1) is None


def test_a_cut_file_tells_its_least_size(tmp_path):
    damage = find_damage(_write(tmp_path, CKPT.read_bytes()[:370], CKPT))
    assert damage.least_bytes == RECORD_ENDS[-1]
    damage = find_damage(_write(tmp_path, SAFETENSORS.read_bytes()[:-8], SAFETENSORS))
    assert damage.least_bytes == SAFETENSORS.stat().st_size


def test_every_cut_of_a_ckpt_is_found_except_between_parameters(tmp_path):
    content = CKPT.read_bytes()
    assert RECORD_ENDS[-1] == len(content) == 382
    unseen = [n for n in range(len(content)) if find_damage(_write(tmp_path, content[:n], CKPT)) is None]
    assert unseen == list(RECORD_ENDS[:-1])


@pytest.mark.parametrize("path", [CKPT_CRC, SAFETENSORS], ids=lambda p: p.name)
def test_every_cut_is_called_cut_short(path, tmp_path):
    content = path.read_bytes()
    ends = {177, 258, 299} if path == CKPT_CRC else set()  # between parameters only the network's names can tell
    for n in set(range(len(content))) - ends:
        damage = find_damage(_write(tmp_path, content[:n], path))
        assert damage is not None, n
        assert damage.kind == "cut_short", (n, damage)


@pytest.mark.parametrize("path", [CKPT, CKPT_CRC, SAFETENSORS], ids=lambda p: p.name)
def test_bytes_after_the_end_are_found(path, tmp_path):
    damage = find_damage(_write(tmp_path, path.read_bytes() + b"\x07", path))
    assert damage is not None
    assert damage.kind == "garbled"


def test_a_preallocated_tail_counts_as_cut_short(tmp_path):
    content = CKPT.read_bytes()
    damage = find_damage(_write(tmp_path, content[:258] + bytes(len(content) - 258), CKPT))
    assert damage is not None
    assert damage.kind == "cut_short"
    assert "From byte 258 on" in damage.problem


def test_a_flipped_bit_is_found_where_a_checksum_was_saved(tmp_path):
    content = bytearray(CKPT_CRC.read_bytes())
    content[0x40] ^= 1  # inside the embedding's values
    damage = find_damage(_write(tmp_path, bytes(content), CKPT_CRC))
    assert damage is not None
    assert "checksum" in damage.problem


def test_a_large_parameter_in_slices_is_added_up(tmp_path):
    # Parameter w of 4 float32 (16 bytes) in two slices of 8 bytes: each record has tag, dims, type and 8 bytes.
    tensor = b"\x08\x04" + b"\x12\x07Float32" + b"\x1a\x08" + b"12345678"
    record = b"\x0a\x01w" + b"\x12" + bytes([len(tensor)]) + tensor
    one = b"\x0a" + bytes([len(record)]) + record
    assert find_damage(_write(tmp_path, one + one, CKPT)) is None
    damage = find_damage(_write(tmp_path, one, CKPT))
    assert damage is not None
    assert damage.problem == "Parameter w has 8 of 16 bytes."
    assert damage.kind == "cut_short"


def test_other_files_under_a_checkpoint_name(tmp_path):
    text = _write(tmp_path, b"<script>alert(1)</script>", CKPT)
    assert "not a MindSpore checkpoint" in find_damage(text).problem
    header = b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}'
    contradiction = _write(tmp_path, len(header).to_bytes(8, "little") + header + bytes(4), SAFETENSORS)
    assert "contradicts its shape" in find_damage(contradiction).problem  # 2 float32 are 8 bytes, not 4
    assert find_damage(_write(tmp_path, b"", CKPT)).problem == "The file is empty."


def test_a_file_that_is_cut_while_it_is_read(tmp_path):
    path = _write(tmp_path, CKPT_CRC.read_bytes(), CKPT_CRC)
    whole = path.read_bytes()
    path.write_bytes(whole[:-17] * 20000 + whole[-17:])  # 6 MB: the checksum is read block by block

    def cut():
        os.truncate(path, 1000)

    assert find_damage(path, tick=cut).problem == "The file became shorter while it was read."


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from([CKPT, CKPT_CRC, SAFETENSORS]),
    st.integers(0, 381),
    st.binary(min_size=1, max_size=12),
    st.integers(0, 400),
)
def test_any_mutation_is_answered_without_an_exception(tmp_path, path, at, junk, cut):
    content = path.read_bytes()
    find_damage(_write(tmp_path, (content[:at] + junk + content[at + len(junk) :])[: max(cut, 1)], path))
