import json

import pandas as pd

from tests.made_run import made_samples
from workbench.analyses.evaluation import subset_metrics
from workbench.analyses.protocol import comparable_samples, protocol_labels
from workbench.findings.evaluation import find_worse_subsets
from workbench.tables import EVAL_SAMPLES, EVALS

FULL = {"dataset_rebuilt": True, "graph_rebuilt": True, "checkpoint_loaded": True, "profiling": True,
        "checkpoint_sha256": "ab", "versions": {"mindspore": "2.10.0"}, "task": {"data": "d1"}}  # fmt: skip


def record(checkpoint, step, **changes):
    return {"kind": "checkpoint", "checkpoint": checkpoint, "step": step, "subset": "code", "metric": "loss",
            "value": 1.0, "evaluation_id": f"e{step}", "protocol": json.dumps({**FULL, **changes})}  # fmt: skip


def test_labels_say_what_was_skipped():
    evals = pd.DataFrame([
        record("a", 1), record("b", 2, profiling=False), record("c", 3, dataset_rebuilt=False, graph_rebuilt=False),
        {**record("d", 4), "protocol": None}, {**record("e", 5), "protocol": "torn {"},
    ])  # fmt: skip
    labels = protocol_labels(evals).set_index("checkpoint")
    assert labels.label.to_list() == [
        "full path", "full path, not profiled", "shortcut: without data set rebuilt, graph rebuilt", "not stated",
        "not stated",
    ]  # fmt: skip
    assert labels.quality_comparable.fillna(False).to_list() == [True, True, False, False, False]
    assert labels.speed_comparable["b"] == False  # noqa: E712
    assert labels.quality_comparable.isna().sum() == 2
    assert labels.mindspore["a"] == "2.10.0"
    assert protocol_labels(EVALS.empty()).empty


def samples(*names):
    parts = [made_samples(n, i + 1) for i, n in enumerate(names)]
    return pd.concat([*parts, made_samples("x", 9).assign(checkpoint=None)])


def test_shortcuts_and_other_data_are_left_out_with_the_reason():
    evals = pd.DataFrame([
        record("a", 1), record("b", 2, graph_rebuilt=False), record("c", 3, task={"data": "d2"}),
        record("d", 4, versions={"mindspore": "2.9.0"}), record("e", 5),
    ])  # fmt: skip
    kept, left_out = comparable_samples(samples("a", "b", "c", "d", "e"), evals)
    assert set(kept.checkpoint.dropna()) == {"a", "e"}
    assert kept.checkpoint.isna().any()  # inline ones stay
    assert left_out.set_index("checkpoint").because.to_dict() == {
        "b": "shortcut: without graph rebuilt",
        "c": "evaluated on other data: d2, the last one d1",
        "d": "evaluated with another MindSpore: 2.9.0, the last one 2.10.0",
    }


def test_a_repeated_full_evaluation_makes_up_for_a_shortcut():
    evals = pd.DataFrame([record("a", 1, graph_rebuilt=False), {**record("a", 1), "evaluation_id": "again"}])
    assert comparable_samples(samples("a"), evals)[1].empty


def test_where_nothing_is_stated_nothing_is_left_out():
    assert comparable_samples(samples("a"), None)[1].empty
    assert comparable_samples(EVAL_SAMPLES.empty(), EVALS.empty())[0].empty


def test_a_worse_score_of_a_shortcut_is_no_finding():
    frame = pd.concat([made_samples("a", 1), made_samples("b", 2, better=-0.5)])
    evals = subset_metrics(frame).assign(kind="checkpoint", evaluation_id=lambda f: f.checkpoint)
    full = evals.assign(protocol=json.dumps(FULL))
    assert find_worse_subsets({"eval_samples": frame, "evals": full})
    shortcut = json.dumps({**FULL, "checkpoint_loaded": False})
    cut = full.assign(protocol=full.protocol.mask(full.checkpoint == "b", shortcut))
    assert find_worse_subsets({"eval_samples": frame, "evals": cut}) == []
