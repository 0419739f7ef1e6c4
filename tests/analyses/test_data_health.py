"""Health per subset, drops, processing times and batch sizes, with values by hand."""

import pandas as pd
import pytest

from workbench.analyses.data_health import batch_sizes, drop_counts, process_times, subset_health
from workbench.tables import DATA_SAMPLES, TRAINING_STEPS

ROWS = [  # subset, problem, bytes, tokens, unknown, single bytes, empty, digest, near_group, us
    ("code", None, 100, 25, 0, 0, False, "a", 0, 10),
    ("code", None, 100, 25, 0, 0, False, "a", 0, 30),
    ("code", None, 200, 50, 5, 10, False, "b", 0, 20),
    ("math", None, 0, 0, 0, 0, True, "", None, 5),
    ("math", None, 50, 10, 0, 0, False, "c", None, 5),
    (None, "not JSON: Expecting value", None, None, None, None, None, None, None, None),
]


@pytest.fixture
def samples():
    names = ["subset", "problem", "size_bytes", "tokens", "unknown_tokens", "byte_tokens", "is_empty", "digest",
             "near_group", "process_us"]  # fmt: skip
    frame = pd.DataFrame(ROWS, columns=names).assign(
        dataset="d", sample=range(6), file="f.jsonl", place=range(1, 7), training_length_tokens=20.0
    )
    return DATA_SAMPLES.check(frame)


def test_health_per_subset(samples):
    table = subset_health(samples).set_index("subset")
    code, math, whole = table.loc["code"], table.loc["math"], table.loc["(all)"]
    assert code[["exact_share", "near_share", "repeated_bytes_share"]].tolist() == [1 / 3, 2 / 3, 300 / 400]
    assert code[["unknown_share", "byte_share", "bytes_per_token"]].tolist() == [5 / 100, 10 / 100, 4]
    assert code[["long_share", "lost_share"]].tolist() == [1, (5 + 5 + 30) / 100]
    assert math[["samples", "empty_share", "near_share", "token_share"]].tolist() == [2, 0.5, 0, 10 / 110]
    assert whole[["samples", "unusable_share", "empty_share"]].tolist() == [6, 1 / 6, 1 / 5]
    assert whole["near_share"] == 2 / 4
    assert subset_health(samples.iloc[:0]).empty


def test_drops_by_reason(samples):
    table = drop_counts(samples)
    assert table["reason"].tolist() == ["empty", "not JSON"] or table["reason"].tolist() == ["not JSON", "empty"]
    assert table.set_index("reason").loc["not JSON", ["samples", "share", "first_place"]].tolist() == [1, 1 / 6, 6]
    assert drop_counts(samples.iloc[:3]).empty


def test_process_times(samples):
    table = process_times(samples).set_index("subset")
    assert table.loc["code", ["samples", "p50_us", "max_us", "slowest_sample"]].tolist() == [3, 20, 30, 1]
    assert table.loc["code", "us_per_kilobyte"] == pytest.approx(60 / 0.4)
    assert process_times(samples.assign(process_us=float("nan"))).empty


def test_batch_sizes():
    steps = pd.DataFrame({"rank_id": 0, "step": [1, 2, 3, 4], "samples": [8.0, 8.0, 3.0, None]})
    table = batch_sizes(TRAINING_STEPS.check(steps))
    assert table[["samples", "steps", "first_step"]].to_numpy().tolist() == [[3, 1, 3], [8, 2, 1]]
    assert table["share"].tolist() == pytest.approx([1 / 3, 2 / 3])
