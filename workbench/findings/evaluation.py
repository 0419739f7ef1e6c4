"""Rules on evaluation results: subsets that got worse, checkpoints without a finite loss."""

from __future__ import annotations

import pandas as pd

from workbench.analyses.evaluation import (
    ALL_SUBSETS,
    changes_from_references,
    checkpoints_in_order,
    subset_metrics,
)
from workbench.analyses.protocol import comparable_samples
from workbench.findings.finding import Culprit, Evidence, Finding, RuledOut, Severity, Steps
from workbench.findings.rule import Rule, Tables
from workbench.findings.subset_course import find_subset_drops

CHANGE_WARNING_NATS = 0.01  # 1 % of perplexity: smaller changes are real and do not matter
CHANGE_CRITICAL_NATS = 0.10


def find_subset_regression(eval_samples: pd.DataFrame, checkpoint: str | None = None) -> list[Finding]:
    """One finding per subset on which a checkpoint is worse than the previous or the best one before it.

    Args:
        eval_samples: table `eval_samples`.
        checkpoint: checkpoint in question; the last one by default.
    """
    order = checkpoints_in_order(eval_samples)
    if len(order) < 2:
        return []
    checkpoint = checkpoint or order[-1]
    changes = changes_from_references(eval_samples, checkpoint)
    worse = changes[(changes["verdict"] == "worse") & (changes["change"] >= CHANGE_WARNING_NATS)]
    worse = worse[worse["subset"] != ALL_SUBSETS].sort_values("change", ascending=False).drop_duplicates("subset")
    whole = changes[changes["subset"] == ALL_SUBSETS].set_index("role")
    steps = eval_samples.dropna(subset=["checkpoint"]).groupby("checkpoint")["step"].first()
    return [_regression(row, whole, checkpoint, steps) for row in worse.to_dict("records")]


def find_worse_subsets(tables: Tables) -> list[Finding]:
    """Drops in the course of a subset with what explains them, then regressions of the last checkpoint elsewhere."""
    if "eval_samples" in tables:
        tables = {**tables, "eval_samples": comparable_samples(tables["eval_samples"], tables.get("evals"))[0]}
    fallen = find_subset_drops(tables)
    named = {f.culprit.subset for f in fallen}
    last = find_subset_regression(tables["eval_samples"]) if "eval_samples" in tables else []
    return [*fallen, *(f for f in last if f.culprit.subset not in named)]


def find_checkpoint_without_loss(eval_samples: pd.DataFrame) -> list[Finding]:
    """One finding if the last checkpoint's loss is not a finite number on a subset."""
    order = checkpoints_in_order(eval_samples)
    if not order:
        return []
    metrics = subset_metrics(eval_samples[eval_samples["checkpoint"] == order[-1]])
    broken = metrics[(metrics["metric"] == "loss") & metrics["value"].isna()]
    if broken.empty:
        return []
    names = ", ".join(broken["subset"].astype(str))
    return [
        Finding(
            cause="loss_not_finite",
            playbook="T1",
            severity="critical",
            confidence="high",
            title=f"Checkpoint {order[-1]} gives no finite loss on {len(broken)} subset(s): {names}.",
            fix="Do not use it; go back to an earlier checkpoint and look at the training before this one.",
            source="definition of a finite number",
            culprit=Culprit(subset=str(broken["subset"].iloc[0])),
            evidence=(Evidence(fact="subsets without a finite loss", value=len(broken), table="eval_samples"),),
        )
    ]


def _regression(row: dict, whole: pd.DataFrame, checkpoint: str, steps: pd.Series) -> Finding:
    change = float(row["change"])
    severity: Severity = "critical" if change >= CHANGE_CRITICAL_NATS else "warning"
    overall = float(whole.loc[row["role"], "change"])
    step = steps.get(checkpoint)
    return Finding(
        cause="subset_regression",
        playbook="T5",
        severity=severity,
        confidence="high" if row["p_holm"] < 0.001 else "medium",
        title=f"Subset {row['subset']} got worse by {change:.3f} nats per token "
        f"({row['low']:+.3f} to {row['high']:+.3f}) against {row['reference']}, while all subsets together changed by "
        f"{overall:+.3f}.",
        fix="Look at the sampling share, length and tokenizer coverage of this subset (troubleshoot/"
        "one_subset_degrades); go back to the better checkpoint if the subset matters.",
        source="paired by sample, cluster jackknife over documents, Holm over subsets (workbench.analyses.evaluation)",
        culprit=Culprit(subset=str(row["subset"])),
        steps=Steps(first=None if pd.isna(step) else int(step), last=None if pd.isna(step) else int(step)),
        evidence=(
            Evidence(fact="paired change of the loss", value=change, unit="nats per token", table="eval_samples",
                     where=f"{row['n']} samples of {row['documents']} documents"),
            Evidence(fact="loss now", value=float(row["after"]), unit="nats per token"),
            Evidence(fact="p-value, adjusted for the number of subsets", value=float(row["p_holm"])),
        ),
        rules_out=(RuledOut(cause="noise", because=f"the interval excludes 0 and p = {row['p_holm']:.2g}"),),
    )  # fmt: skip


RULES: tuple[Rule, ...] = (
    Rule(
        causes=(
            "subset_regression",
            "data_mix_shift",
            "forgetting",
            "tokenizer_special_tokens",
            "context_length_shift",
        ),
        needs=("eval_samples",),
        uses=("evals", "data_mix", "sample_ids", "training_steps", "settings"),
        find=find_worse_subsets,
    ),
    Rule(
        causes=(
            "subset_regression",
            "data_mix_shift",
            "forgetting",
            "tokenizer_special_tokens",
            "context_length_shift",
        ),
        needs=("evals",),
        uses=("data_mix", "sample_ids", "training_steps", "settings"),
        find=lambda t: [] if "eval_samples" in t else find_worse_subsets(t),
    ),
    Rule(
        causes=("loss_not_finite",),
        needs=("eval_samples",),
        find=lambda t: find_checkpoint_without_loss(t["eval_samples"]),
    ),
)
