"""What is seen of a data set: fields, tokens, subsets, problems, in files and in MindRecord."""

import json

import pandas as pd
import pytest

from workbench.errors import UnknownContentError, UnknownParameterError, UnreadableFileError
from workbench.probes.data_set import probe_data_set, save_data_samples
from workbench.probes.text_tokens import token_counter
from workbench.run import open_run

LONG = (
    "the quick brown fox jumps over the lazy dog and runs away from the hunter in the wood until night falls on the "
    "meadow, where the owl calls, the mice hide below old leaves and a cold wind carries the smell of rain and smoke"
)


def probe(path, **options):
    return probe_data_set(path, show_progress=False, **options)


def write_lines(path, records):
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))
    return path


def tokenizer(vocabulary, pre_tokenizer="Whitespace"):
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.models.WordLevel({w: i for i, w in enumerate(vocabulary)}, unk_token="[UNK]")
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = getattr(tokenizers.pre_tokenizers, pre_tokenizer)()
    return made


def test_every_sample_has_its_row(tmp_path):
    path = write_lines(
        tmp_path / "mix.jsonl",
        [
            {"id": "1", "text": LONG, "source": "web"},
            {"id": "2", "text": LONG.upper(), "source": "web"},
            {"id": "3", "text": LONG.replace("hunter", "farmer"), "source": "books"},
            {"id": "4", "text": "  ", "source": "books"},
            "oops",
            {"id": "6", "source": "books"},
        ],
    )
    table = probe(path, tokenizer="bytes", training_length=50)
    assert table["sample"].tolist() == [0, 1, 2, 3, 4, 5]
    assert table["place"].tolist() == [1, 2, 3, 4, 5, 6]
    assert table["subset"].fillna("").tolist() == ["web", "web", "books", "books", "", "books"]
    assert table["tokens"][:2].tolist() == [len(LONG), len(LONG)]
    assert table["digest"][0] == table["digest"][1] != table["digest"][2]
    assert table["near_group"].tolist()[:3] == [0, 0, 0]
    assert table["is_empty"].tolist()[:4] == [False, False, False, True]
    assert table["problem"].fillna("").tolist()[4:] == [
        "not JSON: Expecting value: line 1 column 1 (char 0)", "field 'text' is missing",
    ]  # fmt: skip
    assert set(table["dataset"]) == {"mix"}
    assert set(table["training_length_tokens"]) == {50}


def test_fields_can_be_named_and_are_guessed(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", [{"q": "short", "a": "a longer answer", "kind": "x"}] * 3)
    assert probe(path)["characters"].tolist() == [15] * 3
    named = probe(path, text_field="q", subset_field="kind")
    assert named["characters"].tolist() == [5] * 3
    assert set(named["subset"]) == {"x"}
    with pytest.raises(UnknownParameterError, match="No sample has a field 'body'"):
        probe(path, text_field="body")
    tokens = write_lines(tmp_path / "b.jsonl", [{"input_ids": [1, 2, 3]}, {"input_ids": [1, 2, 3]}, {"input_ids": []}])
    table = probe(tokens)
    assert table["tokens"].tolist() == [3, 3, 0]
    assert table["is_empty"].tolist() == [False, False, True]
    assert table["digest"][0] == table["digest"][1]


def test_unknown_words_and_bytes_are_counted(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", [{"text": "red blue red"}, {"text": "red <0xE4> <0xBD> green"}])
    made = tokenizer(["[UNK]", "red", "blue", "<0xE4>", "<0xBD>"], "WhitespaceSplit")
    table = probe(path, tokenizer=made)
    assert table[["tokens", "unknown_tokens", "byte_tokens"]].to_numpy().tolist() == [[3, 0, 0], [4, 1, 2]]
    assert (table["process_us"] > 0).all()
    made.save(str(tmp_path / "tokenizer.json"))
    again = probe(path, tokenizer=tmp_path / "tokenizer.json")
    assert again["tokens"].tolist() == [3, 4]


def test_byte_level_vocabularies_show_lone_bytes(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    made.train_from_iterator(["hello world " * 50, "é" * 50], trainer)
    counts = token_counter(made)("hello 中é")
    assert counts.single_bytes == 3  # the three bytes of 中; é was learned as one token
    assert counts.unknown == 0


def test_bad_tokenizers_say_so(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", [{"text": "x"}])
    pytest.importorskip("tokenizers")
    with pytest.raises(UnreadableFileError, match="does not exist"):
        probe(path, tokenizer=tmp_path / "no.json")
    with pytest.raises(UnreadableFileError, match="is no tokenizer file"):
        probe(path, tokenizer=path)
    with pytest.raises(UnknownParameterError, match="A int is no tokenizer"):
        probe(path, tokenizer=5)
    with pytest.raises(UnknownContentError, match="does not exist"):
        probe(tmp_path / "no.mindrecord")


def test_only_bad_lines_and_limits(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", ["oops", "[]"])
    assert probe(path)["problem"].notna().tolist() == [True, True]
    many = write_lines(tmp_path / "b.jsonl", [{"text": LONG}] * 10)
    table = probe(many, limit=5, near_limit=2)
    assert table["near_checked"].tolist() == [True, True, False, False, False]
    assert table["near_group"].isna().tolist() == [False, False, True, True, True]
    assert probe(many, near_duplicates=False)["near_checked"].sum() == 0


def test_a_run_keeps_what_was_seen(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", [{"text": LONG}] * 3)
    table = probe(path, tokenizer="bytes")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/run.json").write_text('{"schema": 1, "run_id": "r"}')
    save_data_samples(table, tmp_path / "run")
    read = open_run(tmp_path / "run", quiet=True).table("data_samples")
    pd.testing.assert_frame_equal(read.reset_index(drop=True), table, check_dtype=False)


@pytest.mark.mindspore
def test_mindrecord_is_looked_at_too(tmp_path):
    mindrecord = pytest.importorskip("workbench.probes.mindrecord")
    path = write_lines(tmp_path / "a.jsonl", [{"text": LONG, "source": "web"}, {"text": "other", "source": "code"}])
    mindrecord.convert_to_mindrecord(path, tmp_path / "out", show_progress=False)
    table = probe(tmp_path / "out", tokenizer="bytes")
    assert table["subset"].tolist() == ["web", "code"]
    assert table["tokens"].tolist() == [len(LONG), 5]
    assert set(table["file"]) == {"part-00000.mindrecord"}
