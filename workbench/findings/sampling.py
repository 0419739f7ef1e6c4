"""Rules on the samples that training used: a small shuffle buffer, repeats, and a sampling mix that drifts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from workbench.analyses.sampling_mix import (
    intended_weights,
    is_model_parallel,
    mix_drift,
    overall_shares,
    sampling_shares,
)
from workbench.analyses.shuffle import close_repeats, shuffle_summary, subset_clustering
from workbench.analyses.subset_causes import mix_changes
from workbench.findings.finding import Culprit, Evidence, Finding, Severity, Steps, warning_or_critical
from workbench.findings.rule import Rule, Tables

BUFFER_SHARE_WARNING = 0.10  # of the samples of an epoch
CLUSTERED_WARNING = 0.05  # excess of pairs of one subset within a batch
CLUSTERED_CRITICAL = 0.50
FEWEST_SAMPLES = 200  # of an epoch, to judge its order
SAME_STEP_WARNING = 0.5  # healthy ranks never share samples
CLOSE_WARNING = 0.2  # drawing with replacement gives 0.1, shuffled epochs 0.005
DRIFT_P_VALUE = 1e-3
DRIFT_SHARE = 0.05  # of all draws
DRIFT_RELATIVE, DRIFT_LEAST = 0.5, 0.02  # or half of a small subset's share
OFF_TARGET_Z = 5.0
SWITCHED_SHARE = 0.15  # total variation between two mixes: this share of the draws comes from other sources
PLANNED_WITHIN = 0.1  # of training: a drift this close to a planned change is the plan


def find_sampling_faults(tables: Tables) -> list[Finding]:
    """What is wrong with the order and the mix of the samples.

    Args:
        tables: `sample_ids`; `settings` and `data_mix` tell the intended mix.
    """
    sample_ids = tables["sample_ids"]
    small = find_small_shuffle_buffer(sample_ids)
    found = [*small, *find_repeats(sample_ids, model_parallel=is_model_parallel(tables.get("settings")))]
    if not any(f.confidence == "high" for f in small):  # else the mix drifts because the data are sorted
        found += find_mix_drift(
            sample_ids, intended_weights(tables.get("settings"), tables.get("data_mix")), tables.get("data_mix")
        )
    return found


def find_small_shuffle_buffer(sample_ids: pd.DataFrame) -> list[Finding]:
    """Neighbours of the data set that stay together in training.

    Where samples are read in their order and batches yet mix the recorded subsets as chance would, they were shuffled
    before they were written: that is told as info only.

    Args:
        sample_ids: table `sample_ids`.
    """
    summary = shuffle_summary(sample_ids)
    summary = summary[summary["samples"] >= FEWEST_SAMPLES]
    if summary.empty or not summary["buffer_share"].median() < BUFFER_SHARE_WARNING:
        return []
    clustering = subset_clustering(sample_ids)
    excess = float(clustering["excess_share"].median()) if len(clustering) else float("nan")
    buffer, samples = (float(summary[c].median()) for c in ("buffer_estimate", "samples"))
    clustered = excess >= CLUSTERED_WARNING
    mixed = (
        len(clustering) > 0 and not clustered and round(buffer) <= 1
    )  # read in order: shuffled before it was written
    together = f"; {excess:.0%} of what could be mixed in a batch is not" if clustered else ""
    return [
        Finding(
            cause="small_shuffle_buffer",
            playbook="T6",
            severity="info" if mixed else warning_or_critical(excess, CLUSTERED_CRITICAL),
            confidence="high" if clustered else "low" if mixed else "medium",
            title=_buffer_words(buffer, samples) + together + ".",
            fix="Shuffle over the whole data set: MindDataset(shuffle=True) with an index, or shuffle the samples once "
            "before writing them, and raise shuffle(buffer_size).",
            source="largest advance of a sample against its turn (workbench.analyses.shuffle); thresholds ours",
            steps=_all_steps(sample_ids),
            evidence=(
                Evidence(fact="shuffle buffer, estimated", value=round(buffer), unit="samples", table="sample_ids"),
                Evidence(fact="samples of an epoch on a rank", value=int(samples), unit="samples", table="sample_ids"),
                _share("distance travelled, over that of a complete shuffle", summary["travel_share"].median()),
                _share("range that a batch draws from, over random draws", summary["batch_spread_share"].median()),
                _share("pairs of one subset in a batch beyond chance", excess),
            ),
        )
    ]


def find_repeats(sample_ids: pd.DataFrame, *, model_parallel: bool = False) -> list[Finding]:
    """Samples that several ranks use in the same step, or that come again too soon.

    Args:
        sample_ids: table `sample_ids`.
        model_parallel: ranks share a model, so they share its batches, too: only the first rank is judged.
    """
    if model_parallel and len(sample_ids):
        sample_ids = sample_ids[sample_ids["rank_id"] == sample_ids["rank_id"].min()]
    repeats = close_repeats(sample_ids)
    if repeats.empty or repeats["draws"].iloc[0] < FEWEST_SAMPLES:
        return []
    row = repeats.iloc[0]
    ranks = sample_ids["rank_id"].nunique()
    evidence = (
        _share("draws whose sample is used elsewhere in the same step", row["same_step_share"]),
        _share("draws that repeat one within the window", row["close_share"]),
        Evidence(fact="window", value=int(row["window"]), unit="draws", table="sample_ids"),
        Evidence(fact="distinct samples", value=int(row["distinct"]), unit="samples", table="sample_ids"),
    )
    if ranks > 1 and row["same_step_share"] >= SAME_STEP_WARNING:
        title = (
            f"{row['same_step_share']:.0%} of the samples are used by another of the {ranks} ranks in the same step."
        )
        fix = "Give each rank its own shard: num_shards=world size and shard_id=rank in the data set (ranks of one "
        fix += "tensor- or pipeline-parallel group share theirs: name the degrees in the Recorder's config)."
        return [_repeat("same_samples_on_ranks", "critical", title, fix, evidence, sample_ids)]
    if row["close_share"] >= CLOSE_WARNING:
        title = f"{row['close_share']:.0%} of the draws repeat a sample of the last {int(row['window']):,} draws."
        fix = "Draw without replacement, lower the weight of small subsets, or add data to them."
        return [_repeat("repeated_within_window", "warning", title, fix, evidence, sample_ids)]
    return []


def find_mix_drift(
    sample_ids: pd.DataFrame, intended: Mapping[str, float] | None = None, data_mix: pd.DataFrame | None = None
) -> list[Finding]:
    """Subsets whose share drifts over training, or is not the intended one.

    Args:
        sample_ids: table `sample_ids` with subsets.
        intended: subset -> weight, if known.
        data_mix: table `data_mix`; a change that it plans is none of our business.
    """
    shares = sampling_shares(sample_ids)
    if shares.empty:
        return []
    drift = mix_drift(shares)
    material = (drift["change"].abs() >= DRIFT_SHARE) | (
        (drift["change"].abs() >= DRIFT_RELATIVE * drift["before_share"]) & (drift["change"].abs() >= DRIFT_LEAST)
    )
    drift = drift[material & (drift["p_value"] < DRIFT_P_VALUE)]
    drift = drift[[not _planned(row, shares, data_mix) for row in drift.to_dict("records")]]
    if len(drift):
        return [_drifted(drift, shares, intended)]
    off = overall_shares(sample_ids, intended) if intended and not _has_plan(data_mix) else pd.DataFrame()
    off = off[(off["difference"].abs() >= DRIFT_SHARE) & (off["z"].abs() >= OFF_TARGET_Z)] if len(off) else off
    return [_off_target(off, sample_ids)] if len(off) else []


def find_mix_switch(data_mix: pd.DataFrame) -> list[Finding]:
    """Abrupt changes of the planned mix: what is no longer sampled is forgotten.

    Args:
        data_mix: table `data_mix`.
    """
    found = []
    for step, part in mix_changes(data_mix).groupby("step"):
        moved = float(part["change_share"].abs().sum()) / 2
        if moved < SWITCHED_SHARE:
            continue
        cut = part.iloc[0]  # the largest loss comes first
        found.append(
            Finding(
                cause="data_mix_shift",
                playbook="T5",
                severity="warning",
                confidence="medium",
                title=f"The sampling mix changes at step {step}: {moved:.0%} of the samples come from other sources, "
                f"{cut['source']} falls from {cut['before_share']:.0%} to {cut['after_share']:.0%}.",
                fix="Evaluate a fixed subset for each source; keep a replay share of 20 to 30 % of the old mix, or "
                "change it over many steps.",
                source="half the sum of the changes of all weights; threshold ours",
                culprit=Culprit(subset=str(cut["source"])),
                steps=Steps(first=int(step)),
                evidence=tuple(
                    Evidence(fact=f"weight of {r.source} before and after",
                             value=f"{r.before_share:.3g} -> {r.after_share:.3g}", unit="share", table="data_mix",
                             where=f"from step {step}")
                    for r in part.itertuples()
                ),
            )
        )  # fmt: skip
    return found


def _drifted(drift: pd.DataFrame, shares: pd.DataFrame, intended: Mapping[str, float] | None) -> Finding:
    worst = drift.loc[drift["change"].abs().idxmax()]
    wanted = (intended or {}).get(str(worst["subset"]))
    return Finding(
        cause="data_mix_shift",
        playbook="T5",
        severity="warning",
        confidence="high",
        sub_cause="drift",
        title=f"The share of {worst['subset']} goes from {worst['before_share']:.1%} to {worst['after_share']:.1%}, "
        f"{'at once' if worst['shape'] == 'step' else 'little by little'} from step {worst['onset_step']:.0f}.",
        fix="Find what changed in the data set at that step (a source that ended, weights, a resumed sampler) and "
        "restore the intended weights.",
        source="change of share over windows of steps (workbench.analyses.sampling_mix); thresholds ours",
        culprit=Culprit(subset=str(worst["subset"])),
        steps=Steps(first=int(worst["onset_step"]), last=int(shares["last_step"].max())),
        evidence=(
            *(
                _share(f"change of the share of {r.subset} since step {r.onset_step}", r.change)
                for r in drift.itertuples()
            ),
            Evidence(
                fact="p-value, adjusted for all splits and subsets", value=float(worst["p_value"]), table="sample_ids"
            ),
            *([_share(f"intended share of {worst['subset']}", wanted)] if wanted is not None else []),
        ),
    )


def _off_target(off: pd.DataFrame, sample_ids: pd.DataFrame) -> Finding:
    worst = off.loc[off["difference"].abs().idxmax()]
    return Finding(
        cause="data_mix_shift",
        playbook="T5",
        severity="warning",
        confidence="high",
        sub_cause="off_target",
        title=f"{worst['subset']} makes up {worst['share']:.1%} of the samples, intended were "
        f"{worst['intended_share']:.1%}.",
        fix="Check the weights that the sampler really uses, and whether a source runs out before the others.",
        source="share over the whole training against the intended weights; thresholds ours",
        culprit=Culprit(subset=str(worst["subset"])),
        steps=_all_steps(sample_ids),
        evidence=tuple(
            _share(f"share of {r.subset}, intended {r.intended_share:.1%}", r.share) for r in off.itertuples()
        ),
    )


def _planned(row: Mapping[str, object], shares: pd.DataFrame, data_mix: pd.DataFrame | None) -> bool:
    if data_mix is None or not _has_plan(data_mix):
        return False
    span = float(shares["last_step"].max() - shares["first_step"].min())
    changes = mix_changes(data_mix)
    same = changes[changes["source"] == row["subset"]]
    near = (same["step"] - row["onset_step"]).abs() <= PLANNED_WITHIN * span
    return bool((near & (np.sign(same["change_share"]) == np.sign(row["change"]))).any())  # type: ignore[call-overload]


def _has_plan(data_mix: pd.DataFrame | None) -> bool:
    return data_mix is not None and len(set(data_mix["from_step"])) > 1


def _repeat(
    word: str, severity: Severity, title: str, fix: str, evidence: tuple[Evidence, ...], sample_ids: pd.DataFrame
) -> Finding:
    return Finding(
        cause="duplicate_data", sub_cause=word, playbook="T6", severity=severity, confidence="high", title=title,
        fix=fix,
        source="places of the same sample in training (workbench.analyses.shuffle); thresholds ours", evidence=evidence,
        steps=_all_steps(sample_ids),
    )  # fmt: skip


def _buffer_words(buffer: float, samples: float) -> str:
    if buffer < 2:
        return f"The {samples:,.0f} samples of an epoch are not shuffled at all"
    return f"The samples are shuffled within a buffer of about {buffer:,.0f} of {samples:,.0f}"


def _all_steps(sample_ids: pd.DataFrame) -> Steps:
    return Steps(first=int(sample_ids["step"].min()), last=int(sample_ids["step"].max()))


def _share(fact: str, value: float) -> Evidence:
    return Evidence(fact=fact, value=float(value), unit="share", table="sample_ids")


RULES: tuple[Rule, ...] = (
    Rule(
        causes=("small_shuffle_buffer", "data_mix_shift", "duplicate_data"),
        needs=("sample_ids",),
        uses=("settings", "data_mix"),
        find=find_sampling_faults,
    ),
    Rule(
        causes=("data_mix_shift",),
        needs=("data_mix",),
        uses=("evals", "eval_samples"),  # where subsets are evaluated, their course decides (findings.subset_course)
        find=lambda t: [] if "evals" in t or "eval_samples" in t else find_mix_switch(t["data_mix"]),
    ),
)
