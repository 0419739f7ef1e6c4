"""JSONL of generated texts in the forms that tools write; training data and other JSONL are left alone."""

import json

import pytest

from tests.readers.profiles import read_text
from workbench.readers import ALL_KINDS
from workbench.run import open_run

KIND = "generated_text"


def lines(*records: dict) -> str:
    return "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records)


def only(tmp_path, *records, name="outputs.jsonl"):
    return read_text(tmp_path, name, lines(*records), "generated_text")["generations"].table


def test_flat_records(tmp_path):
    table = only(
        tmp_path,
        {"id": 7, "prompt": "2 + 2 =", "response": " 4", "finish_reason": "stop", "model": "m-100", "step": 100},
        {"id": 8, "prompt": "写", "response": "", "task": "长文本", "temperature": 0.5},
    )
    assert table["sample_id"].tolist() == ["7", "8"]
    assert table["output"].tolist() == [" 4", ""]
    assert table["subset"].tolist() == ["outputs", "长文本"]
    assert table.loc[0, ["checkpoint", "step", "finish_reason"]].tolist() == ["m-100", 100, "stop"]
    assert table["finish_reason"].isna().tolist() == [False, True]


def test_completion_services_give_a_row_per_choice(tmp_path):
    choices = [{"text": "a", "finish_reason": "length"}, {"message": {"role": "assistant", "content": "b"}}]
    table = only(tmp_path, {"prompt": "p", "choices": choices, "id": "x"})
    assert table[["output", "repeat"]].to_numpy().tolist() == [["a", 0], ["b", 1]]
    assert table["finish_reason"].tolist()[0] == "length"
    assert table["finish_reason"].isna().tolist()[1]


def test_chats_and_the_harness(tmp_path):
    chat = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "model": "m"}
    assert only(tmp_path, chat).loc[0, ["prompt", "output"]].tolist() == ["q", "a"]
    harness = {"doc_id": 3, "arguments": [["q", {"until": []}]], "resps": [["one", "two"]], "target": "t"}
    table = only(tmp_path, harness, name="samples_gsm8k.jsonl")
    assert table[["subset", "sample_id", "prompt", "output", "repeat"]].to_numpy().tolist() == [
        ["samples_gsm8k", "3", "q", "one", 0],
        ["samples_gsm8k", "3", "q", "two", 1],
    ]


@pytest.mark.parametrize(
    "record",
    [
        {"prompt": "q", "completion": "a"},  # training data
        {"instruction": "q", "input": "", "output": "a"},
        {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]},
        {"text": "a document"},
        {"step": 3, "loss": 2.5},
        {"model": "m", "accuracy": 0.5},
    ],
)
def test_training_data_and_metrics_are_no_generations(tmp_path, record):
    path = tmp_path / "data.jsonl"
    path.write_text(lines(record))
    kind = next((k for k in ALL_KINDS if k.sniff(path, path.read_bytes())), None)
    assert kind is None or kind.name != KIND


def test_damage_and_missing_outputs_are_noted(tmp_path):
    text = (
        lines({"prompt": "a", "prediction": "b"}, {"prompt": "c"}, {"prompt": "d", "prediction": "e"}) + '{"prompt": "f'
    )
    reading = read_text(tmp_path, "o.jsonl", text, "generated_text")["generations"]
    assert reading.table["output"].tolist() == ["b", "e"]
    assert reading.table["sample_id"].tolist() == ["line 1", "line 3"]
    assert {n.where for n in reading.notes} == {"line 2", "line 4"}


def test_a_folder_with_such_a_file_opens(tmp_path):
    (tmp_path / "answers.jsonl").write_text(lines({"prompt": "q", "generated_text": "a"}))
    run = open_run(tmp_path, quiet=True)
    assert run.table("generations")["output"].tolist() == ["a"]
