"""Which steps of the full path each evaluation did -> its label, and which evaluations may be compared.

The full path rebuilds the data set, rebuilds the graph, loads the checkpoint and turns profiling on before it
evaluates; a record that left something out must not pass for one that did not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd

from workbench.tables import EVAL_SAMPLES, EVALS

STEPS = {
    "dataset_rebuilt": "data set rebuilt",
    "graph_rebuilt": "graph rebuilt",
    "checkpoint_loaded": "checkpoint loaded",
    "profiling": "profiled",
}
QUALITY_STEPS = ("dataset_rebuilt", "graph_rebuilt", "checkpoint_loaded")  # the last step only matters for speed
NOT_STATED = "not stated"
LABEL_COLUMNS = ["evaluation_id", "kind", "checkpoint", "step", "label", "skipped", "quality_comparable",
                 "speed_comparable", "checkpoint_sha256", "mindspore", "data"]  # fmt: skip
LEFT_OUT_COLUMNS = ["checkpoint", "step", "because"]


def protocol_labels(evals: pd.DataFrame) -> pd.DataFrame:
    """One row per evaluation: its label, what it skipped, and what it may be compared for.

    Labels: "full path"; "full path, not profiled" (comparable for quality, not for speed); "shortcut: without ..."
    (not comparable); "not stated" (imported scores, or records without a protocol: missing in both columns).

    Args:
        evals: table `evals`.

    Returns:
        evaluation_id, kind, checkpoint, step, label, skipped (texts joined), quality_comparable, speed_comparable
        (boolean, missing where nothing is stated), checkpoint_sha256, mindspore (version), data (fingerprint), in the
        order of the records.
    """
    rows = EVALS.check(evals)
    keys = ["kind", "checkpoint", "step", "evaluation_id"]
    one = rows.drop_duplicates(keys)
    table = pd.DataFrame([{**{k: r[k] for k in keys}, **_label(r["protocol"])} for r in one.to_dict("records")])
    if table.empty:
        table = pd.DataFrame(columns=LABEL_COLUMNS)
    booleans = {"quality_comparable": "boolean", "speed_comparable": "boolean"}
    return table[LABEL_COLUMNS].astype({**booleans, "step": "Int64"}).reset_index(drop=True)


def comparable_samples(eval_samples: pd.DataFrame, evals: pd.DataFrame | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The samples of checkpoints that may be compared, and the checkpoints that were left out, with the reason.

    Left out are checkpoints whose latest record is a shortcut, and those evaluated on other data or with another
    MindSpore version than the last checkpoint. Inline evaluations (without a checkpoint) are all of one kind and stay:
    they are only compared with each other.

    Args:
        eval_samples: table `eval_samples`.
        evals: table `evals`; without it nothing is known and nothing is left out.
    """
    samples = EVAL_SAMPLES.check(eval_samples)
    labels = protocol_labels(evals if evals is not None else EVALS.empty())
    latest = labels.dropna(subset=["checkpoint"]).drop_duplicates("checkpoint", keep="last").sort_values("step")
    stated = latest[latest["label"] != NOT_STATED]
    if stated.empty:
        return samples, pd.DataFrame(columns=LEFT_OUT_COLUMNS)
    full = stated[stated["quality_comparable"].fillna(False).astype(bool)]
    reference = (full if len(full) else stated).iloc[-1]
    reasons = [(r["checkpoint"], r["step"], _reason(r, reference)) for r in stated.to_dict("records")]
    left_out = pd.DataFrame([r for r in reasons if r[2]], columns=LEFT_OUT_COLUMNS)
    kept = samples[~samples["checkpoint"].isin(set(left_out["checkpoint"])).fillna(False).astype(bool)]
    return kept, left_out


def _reason(row: Mapping[Any, Any], reference: pd.Series) -> str:
    if not bool(row["quality_comparable"]):
        return str(row["label"])
    for column, words in (("data", "evaluated on other data"), ("mindspore", "evaluated with another MindSpore")):
        values = (row[column], reference[column])
        if all(pd.notna(v) for v in values) and values[0] != values[1]:
            return f"{words}: {values[0]}, the last one {values[1]}"
    return ""


def _label(text: object) -> dict[str, object]:
    protocol = _parsed(text)
    facts: dict[str, object] = {
        "checkpoint_sha256": protocol.get("checkpoint_sha256"),
        "mindspore": _dictionary(protocol.get("versions")).get("mindspore"),
        "data": _dictionary(protocol.get("task")).get("data"),
    }
    if not set(STEPS) & set(protocol):
        return {"label": NOT_STATED, "skipped": "", "quality_comparable": pd.NA, "speed_comparable": pd.NA, **facts}
    missing = [name for name in STEPS if not protocol.get(name)]
    lacks_quality = [name for name in missing if name in QUALITY_STEPS]
    label = "full path" if not missing else "full path, not profiled"
    if lacks_quality:
        label = f"shortcut: without {', '.join(STEPS[n] for n in lacks_quality)}"
    return {
        "label": label,
        "skipped": ", ".join(STEPS[n] for n in missing),
        "quality_comparable": not lacks_quality,
        "speed_comparable": not missing,
        **facts,
    }


def _parsed(text: object) -> dict[str, Any]:
    """A protocol; one that is no JSON object states nothing."""
    if not isinstance(text, str):
        return {}
    try:
        return _dictionary(json.loads(text))
    except json.JSONDecodeError:
        return {}


def _dictionary(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
