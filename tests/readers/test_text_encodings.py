"""Series and records in the encodings that editors and spreadsheets write give the same rows as UTF-8."""

import codecs
import json

import pytest

from workbench.readers.text import utf16_of
from workbench.run import open_run

REMARK = "学习率预热阶段结束之后的第一步"  # more Chinese than Latin: few of the bytes are zero in UTF-16
ROWS = [{"备注": REMARK, "step": n, "loss": 2.0 + n / 64, "lr": 0.001} for n in range(1, 41)]
JSON_LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
CSV = "备注,step,loss,lr\n" + "".join(f"{r['备注']},{r['step']},{r['loss']},{r['lr']}\n" for r in ROWS)
ENCODINGS = {
    "utf-8": lambda text: text.encode(),
    "utf-8 with mark": lambda text: text.encode("utf-8-sig"),
    "gbk": lambda text: text.encode("gbk"),
    "utf-16-le with mark": lambda text: codecs.BOM_UTF16_LE + text.encode("utf-16-le"),
    "utf-16-be with mark": lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
    "utf-16-le": lambda text: text.encode("utf-16-le"),
    "utf-16-be": lambda text: text.encode("utf-16-be"),
    "utf-32": lambda text: text.encode("utf-32"),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(("name", "text"), [("m.jsonl", JSON_LINES), ("m.csv", CSV)])
def test_rows_are_read_in_any_of_the_encodings(tmp_path, encoding, name, text):
    (tmp_path / name).write_bytes(ENCODINGS[encoding](text))
    run = open_run(tmp_path, quiet=True)
    steps = run.table("training_steps")
    assert steps["step"].tolist() == list(range(1, 41))
    assert steps["loss"].tolist() == [row["loss"] for row in ROWS]
    remarks = run.table("series").query("column == '备注'")
    assert remarks["text"].tolist() == [REMARK] * 40
    noted = [str(note) for note in run.notes]
    assert len(noted) == (encoding == "gbk")  # which could be another one: the note names file, reading and fix
    assert all("m." in note and "read as GBK" in note and "Fix: save the file as UTF-8" in note for note in noted)


def test_a_record_of_utf8_that_is_torn_within_a_character_is_not_taken_for_gbk(tmp_path):
    whole = JSON_LINES.encode()
    (tmp_path / "m.jsonl").write_bytes(whole + '{"备注": "学习'.encode()[:-1])
    run = open_run(tmp_path, quiet=True)
    assert len(run.table("training_steps")) == 40
    assert [note.problem for note in run.notes] == ["The last record is torn: writing was interrupted."]


def test_one_line_of_another_encoding_does_not_change_the_others(tmp_path):
    odd = json.dumps({"备注": "乙", "step": 41, "loss": 1.0}, ensure_ascii=False).encode("gbk")
    (tmp_path / "m.jsonl").write_bytes(JSON_LINES.encode() + odd + b"\n")
    run = open_run(tmp_path, quiet=True)
    assert run.table("training_steps")["step"].tolist() == list(range(1, 42))
    assert run.table("series").query("column == '备注'")["text"].tolist() == [REMARK] * 40 + ["乙"]
    assert [note.where for note in run.notes] == ["line 41"]


@pytest.mark.parametrize(
    "head",
    [
        bytes(4096),
        b"loss: 1.5\n" * 50 + bytes(500),
        b"".join(n.to_bytes(4, "little") for n in range(1, 300)),
        "步,值\n1,2\n".encode() * 20,
    ],
    ids=["zeros", "text with a hole", "int32", "utf-8"],
)
def test_what_is_no_wide_text_is_left_alone(head):
    assert utf16_of(head) is None
