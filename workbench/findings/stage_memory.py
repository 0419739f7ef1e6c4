"""Memory peaks per pipeline stage, from dry runs or logs -> findings on uneven stages."""

from __future__ import annotations

import pandas as pd

from workbench.analyses.memory import STAGE_SETTINGS
from workbench.analyses.settings import setting
from workbench.findings.finding import Culprit, Evidence, Finding, RuledOut
from workbench.findings.memory import STAGE_SPREAD_WARNING

GIB = 2**30
NEAR_SHARE = 0.9  # of the limit: fragments alone can take the tenth that is left; below, uneven stages do no harm
FRAGMENT_SHARE = 0.15  # of the peak: above it fragments, not tensors, are what is too much
SOURCE = "memory figures at the end of a dry run or log, highest of each stage; threshold ours"
EMBEDDING = {
    "vocab_size": "vocabulary of the embedding, which lies on the first stage",
    "offset": "layers moved between the stages (offset)",
    "parallel_optimizer": "optimizer state of the embedding is sharded (parallel_optimizer)",
    "num_layers": "layers of the model",
}


def find_stage_imbalance_in_logs(
    peaks: pd.DataFrame, settings: pd.DataFrame | None = None, failures: pd.DataFrame | None = None
) -> list[Finding]:
    """One finding if the stages of a job hold uneven memory, or all of them more than the limit.

    Args:
        peaks: as `workbench.analyses.log_memory.stage_peaks_of_logs` returns; of several sets the one with the stages
            that the settings name counts, else the one with most stages; the others are compared with it.
        settings: table `settings`.
        failures: as `workbench.analyses.log_memory.memory_failures` returns.
    """
    if peaks.empty:
        return []
    here = _current(peaks, settings)
    level, budget = here["actual_peak_bytes"], float(here["budget_bytes"].min())
    over = here[level > budget]
    spread = float(level.max() - level.min())
    if len(over) and float(level.mean()) > budget:
        return [_too_large(here, budget)]
    if not len(over) and spread < STAGE_SPREAD_WARNING * float(level.max()):
        return []
    return [_imbalance(here, budget, peaks, settings, failures)]


def _current(peaks: pd.DataFrame, settings: pd.DataFrame | None) -> pd.DataFrame:
    sizes = peaks.groupby("set").size().sort_index()
    stages = int(float(setting(settings, *STAGE_SETTINGS) or 0))
    names = sizes.index[sizes == stages] if (sizes == stages).any() else sizes.index[sizes == sizes.max()]
    return peaks[peaks["set"] == names[-1]].sort_values("stage", ignore_index=True)


def _imbalance(
    here: pd.DataFrame,
    budget: float,
    peaks: pd.DataFrame,
    settings: pd.DataFrame | None,
    failures: pd.DataFrame | None,
) -> Finding:
    level = here.set_index("stage")["actual_peak_bytes"]
    stage, emptiest = int(level.idxmax()), int(level.idxmin())
    over = [int(s) for s in level.index if level[s] > budget]
    falling = bool(level.is_monotonic_decreasing) and not over
    is_near = not float(level.max()) < NEAR_SHARE * budget or (failures is not None and not failures.empty)
    title = f"Stage {stage} needs {level.max() / GIB:.1f} GiB, stage {emptiest} only {level.min() / GIB:.1f} GiB"
    if over:
        title += f", at a limit of {budget / GIB:.1f} GiB that the mean of {level.mean() / GIB:.1f} GiB fits into"
    return Finding(
        cause="stage_imbalance",
        playbook="T3",
        severity="critical" if over else "warning" if not falling and is_near else "info",
        confidence="medium" if falling else "high",
        title=title + ".",
        fix=_fix(level, budget, over),
        source=SOURCE,
        culprit=Culprit(rank=_rank(here, stage), stage=stage),
        evidence=(
            *_peak_facts(here, budget, over),
            *_other_sets(here, peaks, stage),
            *_embedding_facts(settings, stage),
            *_failure_facts(failures),
        ),
        rules_out=(*_no_fragments(here), *_not_the_model(over)),
    )


def _too_large(here: pd.DataFrame, budget: float) -> Finding:
    level = here.set_index("stage")["actual_peak_bytes"]
    return Finding(
        cause="out_of_memory",
        playbook="T3",
        severity="critical",
        confidence="high",
        title=f"The stages need {level.mean() / GIB:.1f} GiB in the mean, above the limit of {budget / GIB:.1f} GiB.",
        fix="Recompute activations, shard optimizer state over the data-parallel ranks, or spread the model over more "
        "devices; moving layers between the stages is not enough.",
        source=SOURCE,
        culprit=Culprit(rank=_rank(here, int(level.idxmax())), stage=int(level.idxmax())),
        evidence=tuple(_peak_facts(here, budget, [int(s) for s in level.index if level[s] > budget])),
        rules_out=_no_fragments(here),
    )


def _rank(here: pd.DataFrame, stage: int) -> int | None:
    rank = here.loc[here["stage"] == stage, "rank_id"].iloc[0]
    return None if pd.isna(rank) else int(rank)


def _fix(level: pd.Series, budget: float, over: list[int]) -> str:
    stage = int(level.idxmax())
    room = [int(s) for s in level.sort_values().index if level[s] < level.mean()]
    text = (
        f"Move layers off stage {stage} to stage {' or '.join(map(str, room[:2]))} (offset), recompute more on the "
        "full stages than on the others, and shard the embedding and its optimizer state; then make a dry run again, "
        "one rank per stage."
    )
    if over:
        text += f" {(level.max() - budget) / GIB:.1f} GiB must go; more pipeline stages are not the next step."
    return text


def _peak_facts(here: pd.DataFrame, budget: float, over: list[int]) -> list[Evidence]:
    name = str(here["set"].iloc[0])
    level = here["actual_peak_bytes"]
    facts = [
        Evidence(fact=f"peak of stage {r.stage}", value=float(r.actual_peak_bytes) / GIB, unit="GiB",
                 table="log_messages", where=name)
        for r in here.itertuples()
    ]  # fmt: skip
    spread = float(level.max() - level.min())
    facts.append(Evidence(fact="spread of the peaks over the stages", value=spread / GIB, unit="GiB"))
    facts.append(Evidence(fact="mean of the stages", value=float(level.mean()) / GIB, unit="GiB"))
    if budget == budget:
        facts.append(Evidence(fact="limit of the pool (budget)", value=budget / GIB, unit="GiB", where=name))
        text = f"of {len(here)} stages: {', '.join(map(str, over)) or 'none'}"
        facts.append(Evidence(fact="stages over the budget", value=len(over), unit=text, where=name))
    return facts


def _other_sets(here: pd.DataFrame, peaks: pd.DataFrame, stage: int) -> list[Evidence]:
    """How the fullest stage's peak moved from dry runs with other numbers of stages to this one."""
    top = float(here["actual_peak_bytes"].max())
    facts = []
    for name, other in peaks[peaks["set"] != here["set"].iloc[0]].groupby("set"):
        before = float(other["actual_peak_bytes"].max())
        facts.append(
            Evidence(fact=f"highest peak with {len(other)} stages; with {len(here)} it is {top / before - 1:+.0%}",
                     value=before / GIB, unit="GiB", table="log_messages", where=str(name))
        )  # fmt: skip
    return facts


def _embedding_facts(settings: pd.DataFrame | None, stage: int) -> list[Evidence]:
    """What the settings tell of the embedding, if the first stage is the fullest."""
    if stage != 0:
        return []
    found = {fact: setting(settings, name) for name, fact in EMBEDDING.items()}
    return [Evidence(fact=f, value=v, table="settings") for f, v in found.items() if v is not None]


def _failure_facts(failures: pd.DataFrame | None) -> list[Evidence]:
    if failures is None or failures.empty:
        return []
    row = failures.iloc[0]
    phase = str(row["phase"]).replace("_", " ")
    fact = f"allocation that failed on rank {row['rank_id']} ({phase})"
    size = float(row["request_bytes"]) / GIB if row["request_bytes"] > 0 else None
    where = f"{row['file']}, line {row['line']}"
    return [Evidence(fact=fact, value=size, unit="GiB", table="log_messages", where=where)]


def _not_the_model(over: list[int]) -> tuple[RuledOut, ...]:
    """What a failure on the full stages is not, where the mean of the stages fits."""
    because = f"all stages together fit; only stage {' and '.join(map(str, over))} is beyond the limit, and fails there"
    return (RuledOut(cause="out_of_memory", because=because),) if over else ()


def _no_fragments(here: pd.DataFrame) -> tuple[RuledOut, ...]:
    share = float((1 - here["used_peak_bytes"] / here["actual_peak_bytes"]).max())
    if not share < FRAGMENT_SHARE:
        return ()
    because = f"peaks with and without fragments differ by {share:.1%} at most"
    return (RuledOut(cause="fragmentation", because=because),)
