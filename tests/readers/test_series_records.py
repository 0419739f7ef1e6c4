import pytest

from workbench.errors import UnreadableFileError
from workbench.readers import ALL_KINDS
from workbench.readers.kinds import FileContext
from workbench.readers.series_records import read_records, sniff_records


def write(folder, *lines, name="metrics.jsonl"):
    path = folder / name
    path.write_text("".join(line + "\n" for line in lines))
    return path


def kind_of(path):
    return next((kind.name for kind in ALL_KINDS if kind.sniff(path, path.read_bytes())), None)


def test_steps_have_their_units(tmp_path):
    path = write(
        tmp_path,
        '{"step": 1, "loss": 2.5, "step_time_ms": 850.5, "host_rss_mb": 4096, "overflow": false}',
        '{"step": 2, "loss": NaN, "step_time_ms": null, "overflow": true}',
    )
    assert kind_of(path) == "json_lines_series"
    steps = read_records(path, FileContext(root=tmp_path))["training_steps"].table
    assert steps["step"].tolist() == [1, 2]
    assert steps["step_us"].tolist()[0] == 850_500.0
    assert steps["host_memory_bytes"].tolist()[0] == 4096 * 1024**2
    assert steps[["step_us", "host_memory_bytes"]].isna().to_numpy().tolist() == [[False, False], [True, True]]
    assert steps["loss_finite"].tolist() == [True, False]
    assert steps["overflow"].tolist() == [False, True]


def test_scores_mix_and_telemetry(tmp_path):
    scores = write(tmp_path, '{"step": 100, "task": "math", "num_samples": 50, "accuracy": 0.5}', name="a.jsonl")
    assert read_records(scores, FileContext(root=tmp_path))["evals"].table[
        ["subset", "n", "value"]
    ].values.tolist() == [["math", 50, 0.5]]
    mix = write(tmp_path, '{"from_step": 0, "source": "web", "weight_pct": 40}', name="b.jsonl")
    assert read_records(mix, FileContext(root=tmp_path))["data_mix"].table["weight_share"].tolist() == [0.4]
    cards = write(tmp_path, '{"device": 3, "total_mb": 100, "used_mb": 90}', name="c.jsonl")
    assert read_records(cards, FileContext(root=tmp_path))["telemetry"].table["value"].tolist() == [
        100 * 1024**2,
        90 * 1024**2,
    ]


def test_a_torn_last_record_is_noted(tmp_path):
    path = write(tmp_path, '{"step": 1, "loss": 2.5}', '{"step": 2, "lo')
    reading = read_records(path, FileContext(root=tmp_path))["training_steps"]
    assert reading.table["step"].tolist() == [1]
    assert "line 2" in reading.notes[0].where


@pytest.mark.parametrize(
    "line",
    [
        '{"text": "a sentence", "source": "web", "tokens": 3}',  # training data
        '{"category": "qa", "score": 1, "prompt": "x"}',
        '{"step": 1, "loss": {"lm": 2.0}}',
        '{"step": 1, "comment": "x"}',
        "[1, 2]",
    ],
)
def test_other_records_are_left_alone(tmp_path, line):
    path = write(tmp_path, line)
    assert not sniff_records(path, path.read_bytes())


def test_without_a_known_key_it_says_so(tmp_path):
    with pytest.raises(UnreadableFileError, match="csv_columns"):
        read_records(write(tmp_path, '{"a": 1}'), FileContext(root=tmp_path))
