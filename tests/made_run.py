"""A made training run with chosen faults: frames, or a run directory as the Recorder writes it."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from workbench.files import RunFiles

BASE_NS = 1_780_000_000_000_000_000
GROUPS = ("embedding", "blocks.0", "blocks.1")
SUBSETS = {"code": 2.0, "prose": 3.0, "长文本": 4.0}


def made_steps(steps=300, *, rank_id=0, seed=0, **columns) -> pd.DataFrame:
    """Healthy steps of about 100 ms with 2 % noise; `columns` replaces whole columns."""
    random = np.random.default_rng(1000 * seed + rank_id)
    number = np.arange(1, steps + 1)
    frame = pd.DataFrame({"rank_id": rank_id, "step": number, "epoch": 1})
    frame["loss"] = 2.5 + 3 * np.exp(-number / 80) + random.normal(0, 0.06, steps)
    frame["learning_rate"] = 1e-3 * np.minimum(number / 20, 1)
    frame["gradient_norm"] = (0.6 + 2 * np.exp(-number / 30)) * np.exp(random.normal(0, 0.2, steps))
    frame["parameter_norm"], frame["overflow"], frame["loss_scale"] = 30.0, False, 1.0
    frame["tokens"], frame["samples"] = 1024.0, 8.0
    frame["step_us"] = 100_000 * random.normal(1, 0.02, steps).clip(0.9)
    frame["data_wait_us"] = random.gamma(2, 300, steps)
    frame["callbacks_us"] = 40.0
    frame["compiled"] = number == 1
    frame.loc[0, "step_us"] = 9e6
    frame["host_memory_bytes"] = 1.1e9 + random.normal(0, 1e5, steps)
    frame = frame.assign(**columns)
    wall_us = frame["step_us"] + frame["callbacks_us"]
    return frame.assign(time_ns=BASE_NS + (wall_us.cumsum() * 1000).astype("int64"))


def made_groups(steps: pd.DataFrame) -> pd.DataFrame:
    """Norms per parameter group of `made_steps`."""
    parts = [
        steps[["rank_id", "step"]].assign(group=g, gradient_norm=steps["gradient_norm"] / (i + 1), parameter_norm=10.0)
        for i, g in enumerate(GROUPS)
    ]
    groups = pd.concat(parts, ignore_index=True)
    return groups.assign(gradient_parameter_ratio=groups["gradient_norm"] / groups["parameter_norm"])


def made_samples(checkpoint: str, step: int, *, better=0.0, worse=(), seed=0) -> pd.DataFrame:
    """Scores of 12 documents x 3 samples per subset; `better` lowers every loss, subsets in `worse` rise by 0.2."""
    random = np.random.default_rng(7)
    rows = []
    for subset, level in SUBSETS.items():
        documents = random.normal(0, 0.3, 12)
        for d in range(12):
            for k in range(3):
                loss = level + documents[d] + random.normal(0, 0.1)
                rows.append((checkpoint, step, subset, f"{subset}/{d}#{k}", f"{subset}/{d}", 64.0, 80.0, loss))
    columns = ["checkpoint", "step", "subset", "sample_id", "document_id", "scored_tokens", "scored_bytes", "loss"]
    frame = pd.DataFrame(rows, columns=columns)
    noise = np.random.default_rng([seed, step]).normal(0, 0.02, len(frame))
    loss = frame["loss"] - better + 0.2 * frame["subset"].isin(worse) + noise
    return frame.assign(loss_nats=loss * 64, correct_tokens=20.0, length_tokens=64.0).drop(columns="loss")


def write_run(root: Path, steps: pd.DataFrame, *, events=(), samples: pd.DataFrame | None = None, config=None) -> Path:
    """Write a run directory; returns `root`."""
    from workbench.analyses.evaluation import subset_metrics

    files = RunFiles(root)
    root.mkdir(parents=True, exist_ok=True)
    ranks = sorted(int(r) for r in steps["rank_id"].unique())
    info = {"schema": 1, "run_id": root.name, "start_ns": BASE_NS, "world_size": len(ranks), "config": config or {},
            "steps_total": int(steps["step"].max()), "versions": {"mindspore": "2.10.0"}}  # fmt: skip
    files.run_json.write_text(json.dumps(info))
    for rank_id in ranks:
        rank = steps[steps["rank_id"] == rank_id]
        _write_lines(files.metrics(rank_id), [_record(row) for row in rank.drop(columns="rank_id").to_dict("records")])
        _write_lines(files.events(rank_id), [e for e in events if e.get("rank_id", 0) == rank_id])
    if samples is not None:
        files.eval_samples.mkdir(parents=True)
        for checkpoint, part in samples.groupby("checkpoint"):
            part.to_parquet(files.eval_samples / f"checkpoint__{checkpoint}.parquet", index=False)
        _write_lines(files.evals / "checkpoint.jsonl", subset_metrics(samples).to_dict("records"))
    return root


def _record(row: dict) -> dict:
    known = row.get("gradient_norm") is not None and np.isfinite(row["gradient_norm"])
    groups = {g: [row["gradient_norm"] / (i + 1), 10.0] for i, g in enumerate(GROUPS)} if known else {}
    return {**{k: "NaN" if isinstance(v, float) and np.isnan(v) else v for k, v in row.items()}, "groups": groups}


def _write_lines(path: Path, records: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r, ensure_ascii=False, default=int) + "\n" for r in records))
