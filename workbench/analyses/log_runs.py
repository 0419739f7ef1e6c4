"""Steps that several files tell -> which files are one run, and one row per step where they complete each other.

A folder may hold the log of one job and a CSV of the same steps, or the logs of two jobs to compare. Files of one rank
that measured the same steps differently are two jobs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

COMMON_SHARE_LEAST = 0.5  # of the shorter file's steps: a job that was resumed repeats fewer
COMMON_STEPS_LEAST = 3
MEASURED = ("step_us", "loss", "gradient_norm", "samples_per_s", "tokens_per_s")
SAME = 1e-4  # relative: one file may print fewer digits
EARLIER_WORDS = ("before", "old", "baseline", "base", "previous", "reference", "ref")
LATER_WORDS = ("after", "new", "current", "candidate", "upgraded", "upgrade")
_TOKEN = re.compile(r"[A-Za-z]+|\d+")


def run_of_source(training_steps: pd.DataFrame) -> pd.Series:
    """Which run each file belongs to.

    Args:
        training_steps: table `training_steps`; the column `source` names the file.

    Returns:
        Index: source; value: number of the run, 0 for the earliest: by words such as before and after in the names,
        else by the first time, else by the name. Empty in, empty out.
    """
    parts = {str(s): part for s, part in training_steps.groupby("source")}
    if training_steps.groupby("rank_id")["source"].nunique().max() == 1:
        return pd.Series(0, index=pd.Index(list(parts), name="source"), dtype="int64")
    runs: list[list[str]] = []
    for source in sorted(parts, key=lambda s: (_first_time(parts[s]), s)):
        fitting = [run for run in runs if _fits(source, run, parts)]
        if fitting:
            fitting[0].append(source)
        else:
            runs.append([source])
    ordered = sorted(runs, key=lambda run: (_word(run), min(_first_time(parts[s]) for s in run), run[0]))
    number = {source: i for i, run in enumerate(ordered) for source in run}
    return pd.Series(number, dtype="int64").rename_axis("source")


def merged_steps(training_steps: pd.DataFrame) -> pd.DataFrame:
    """One row per rank and step where several files of one run tell of it: of each column the first known value.

    Ranks in whose files a step stands twice (a restart) are left as they are.
    """
    keys = ["rank_id", "step"]
    ranks = training_steps.groupby("rank_id")["source"].nunique()
    repeated = training_steps.duplicated([*keys, "source"]).groupby(training_steps["rank_id"]).any()
    several = [r for r in ranks.index if ranks[r] > 1 and not repeated[r]]
    is_several = training_steps["rank_id"].isin(several)
    if not is_several.any():
        return training_steps
    merged = training_steps[is_several].groupby(keys, sort=True, as_index=False).first()
    rows = pd.concat([training_steps[~is_several], merged[list(training_steps.columns)]])
    return rows.astype(training_steps.dtypes.to_dict()).sort_values(keys, kind="stable", ignore_index=True)


def logging_interval(training_steps: pd.DataFrame, evals: pd.DataFrame | None) -> int:
    """Steps between the lines of a log without step numbers, 1 where nothing tells it.

    Such a log counts its lines. Where other files give scores at training steps, as many as the log prints
    evaluations, the two counts stand in one ratio.

    Args:
        training_steps: of one log.
        evals: table `evals`: the log's own evaluations (subset `eval`) and those of other files.
    """
    if evals is None or training_steps.empty:
        return 1
    own = sorted(evals.loc[evals["subset"] == "eval", "step"].dropna().unique())
    others = sorted(s for s in evals.loc[evals["subset"] != "eval", "step"].dropna().unique() if s > 0)
    if not own or len(own) != len(others):
        return 1
    ratios = np.array(others, dtype="float64") / np.array(own, dtype="float64")
    interval = round(float(np.median(ratios)))
    return interval if interval >= 1 and bool(np.isclose(ratios, interval, rtol=0.05).all()) else 1


def name_of_run(names: Sequence[str], runs: Mapping[int, Sequence[str]]) -> dict[str, int]:
    """Which run each of some files belongs to, by the words of their names that only one run's files have.

    Returns:
        Only files that fit exactly one run: name -> run.
    """
    words = {run: set.union(set(), *(_tokens(s) for s in sources)) for run, sources in runs.items()}
    own = {r: w - set.union(set(), *(v for o, v in words.items() if o != r)) for r, w in words.items()}
    found = {n: [run for run, unique in own.items() if _tokens(n) & unique] for n in names}
    return {name: fitting[0] for name, fitting in found.items() if len(fitting) == 1}


def named_in_order(earlier: Sequence[str], later: Sequence[str]) -> bool:
    """Whether words of the names tell which files are the earlier run's or the reference: before, old, reference."""
    return _word(earlier) < _word(later)


def _fits(source: str, run: Sequence[str], parts: Mapping[str, pd.DataFrame]) -> bool:
    """Whether a file can belong to a run: it contradicts none of its files, and lies with them if the ranks do not."""
    if any(_contradict(parts[source], parts[other]) for other in run):
        return False
    one_folder = any(_folder(source) == _folder(other) for other in run)
    near = any(_overlap(parts[source], parts[other]) for other in run)
    return one_folder or near


def _contradict(a: pd.DataFrame, b: pd.DataFrame) -> bool:
    """Whether two files of one rank measured the same steps, with other results."""
    if not set(a["rank_id"].unique()) & set(b["rank_id"].unique()):
        return False
    both = a.drop_duplicates(["rank_id", "step"]).merge(
        b.drop_duplicates(["rank_id", "step"]), on=["rank_id", "step"], suffixes=("", "_b")
    )
    least = max(COMMON_STEPS_LEAST, COMMON_SHARE_LEAST * min(len(a), len(b)))
    if len(both) < least:
        return False
    for column in MEASURED:
        known = both[[column, f"{column}_b"]].dropna()
        away = (known[column] - known[f"{column}_b"]).abs() > SAME * known.abs().max(axis=1)
        if len(known) >= COMMON_STEPS_LEAST and away.mean() > 0.5:
            return True
    return False


def _overlap(a: pd.DataFrame, b: pd.DataFrame) -> bool:
    """Whether two files were written at the same time; True where a time is missing."""
    times = [t["time_ns"].dropna() for t in (a, b)]
    if any(t.empty for t in times):
        return True
    return bool(times[0].min() <= times[1].max() and times[1].min() <= times[0].max())


def _first_time(steps: pd.DataFrame) -> float:
    times = steps["time_ns"].dropna()
    return float(times.min()) if len(times) else np.inf


def _folder(source: str) -> str:
    return source.rpartition("/")[0]


def _tokens(name: str) -> set[str]:
    return {t.lower() for t in _TOKEN.findall(name)}


def _word(run: Sequence[str]) -> int:
    """-1 for names with a word for the earlier run, 1 for the later, 0 for neither."""
    tokens = set.union(*(_tokens(s) for s in run))
    return int(bool(tokens & set(LATER_WORDS))) - int(bool(tokens & set(EARLIER_WORDS)))
