"""Files of the optional probes: layers, batches, varied samples; whole, torn and damaged."""

import json

import pandas as pd
import pytest

from tests.readers.profiles import read, read_text
from workbench.errors import UnreadableFileError


def in_folder(tmp_path, folder, name, text, kind):
    (tmp_path / folder).mkdir()
    return read_text(tmp_path / folder, name, text, kind, rank_id=int(name[5]))


def test_layers_become_a_row_per_layer_and_range(tmp_path):
    record = {"step": 5, "positions": [[0, 3], [4, 7]],
              "layers": {"b": [[0.5, 1.0, 2.0, 0.25], [0, 1, 1, 0], [1, 1, 2, 0.5]], "a": [[0, 1, 3, 0]]}}  # fmt: skip
    text = json.dumps(record | {"step": 5, "layers": {}}) + "\n" + json.dumps(record) + "\n{"
    reading = in_folder(tmp_path, "layers", "rank_2.jsonl", text, "run_layers")["layer_statistics"]
    assert reading.table[["rank_id", "step", "layer", "layer_index"]].to_numpy().tolist() == [
        [2, 5, "b", 0], [2, 5, "b", 0], [2, 5, "b", 0], [2, 5, "a", 1],
    ]  # fmt: skip
    whole = reading.table[reading.table["first_position"].isna()]
    assert whole[["mean", "spread", "max_abs", "zero_share"]].to_numpy().tolist() == [[0.5, 1, 2, 0.25], [0, 1, 3, 0]]
    assert reading.table["last_position"].dropna().tolist() == [3, 7]
    assert [n.where for n in reading.notes] == ["line 3"]


@pytest.mark.parametrize("layers", [None, 3, {"a": 1}, {"a": [1, 2]}, {"a": [[1, "x"]]}])
def test_odd_layer_records_lose_only_themselves(tmp_path, layers):
    good = {"step": 1, "layers": {"a": [[0, 1, 2, 0]]}}
    text = json.dumps(good) + "\n" + json.dumps({"step": 2, "layers": layers})
    table = in_folder(tmp_path, "layers", "rank_0.jsonl", text, "run_layers")["layer_statistics"].table
    assert table.loc[table["step"] == 1, "spread"].tolist() == [1.0]


def test_batches(tmp_path):
    rows = [{"spike_step": 9, "step": 8, "row": r, "fingerprint": f"f{r}", "loss": 2.0 + r} for r in (0, 1)]
    text = "".join(json.dumps(r) + "\n" for r in [*rows, rows[1] | {"loss": 7.0}])
    table = in_folder(tmp_path, "batches", "rank_0.jsonl", text, "run_batches")["suspect_batches"].table
    assert table["loss"].tolist() == [2.0, 7.0]
    assert table["sample_id"].isna().all()


def test_varied_samples(tmp_path):
    folder = tmp_path / "post_training"
    folder.mkdir()
    path = folder / "robustness__c.parquet"
    frame = pd.DataFrame({"dimension": ["robustness"], "variant": ["typos"], "subset": ["a"], "sample_id": ["1"],
                          "loss_nats": [3.0]})  # fmt: skip
    frame.to_parquet(path)
    assert read(path, "run_variant_samples")["variant_samples"].table["loss_nats"].tolist() == [3.0]
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(UnreadableFileError, match="post-training"):
        read(path, "run_variant_samples")
