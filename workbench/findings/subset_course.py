"""Rules on the course of each subset's score: which one fell beyond noise, since when, and what explains it."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from workbench.analyses.subset_causes import (
    change_by_length,
    coverage_changes,
    mix_change_at,
    mix_changes,
    recorded_mix_changes,
    retokenized,
)
from workbench.analyses.subset_course import COLUMNS, kind_of_samples, paired_drops, score_drops
from workbench.analyses.training import job_steps, level_at
from workbench.findings.finding import Culprit, Evidence, Finding, RuledOut, Steps
from workbench.findings.rule import Tables
from workbench.findings.subset_settings import Explanation, by_settings
from workbench.tables import DATA_MIX

SIGNIFICANT = 0.05
CERTAIN = 0.001
DROP_WARNING = 0.01  # nats per token, bits per byte, or share: smaller drops are real and do not matter
DROP_CRITICAL = {"lower": 0.10, "higher": 0.05}
HIDDEN_SHARE = 1 / 3  # an average that moves less than this part of the drop does not show it
LOST_SHARE = 0.05  # cut sources that together gave less than this share of the samples explain little
COVERAGE_RISE_SHARE = 0.01  # rise of unknown or byte-fallback tokens that matters
SOURCE = ("drop of windows of up to 3 evaluations, Bonferroni over windows, Holm over subsets "
          "(workbench.analyses.subset_course); thresholds ours")  # fmt: skip


def find_subset_drops(tables: Tables) -> list[Finding]:
    """One finding per subset whose latest evaluations are worse than earlier ones beyond noise, the largest first.

    Args:
        tables: `eval_samples` (paired) or `evals`; `data_mix`, `sample_ids`, `training_steps`, `settings` explain
            and complete.
    """
    courses = subset_drops(tables)
    fallen = worth_saying(courses)
    return [_finding(row, courses, tables) for row in fallen.to_dict("records")]


def subset_drops(tables: Tables) -> pd.DataFrame:
    """Courses of all subsets (`subset_course.drops`): paired where samples were kept, else from the scores."""
    parts = []
    kept: set[str] = set()
    if "eval_samples" in tables:
        samples = tables["eval_samples"]
        parts.append(paired_drops(samples))
        kept = {kind_of_samples(is_inline=flag) for flag in samples["checkpoint"].isna().unique()}
    if "evals" in tables:
        rest = tables["evals"][~tables["evals"]["kind"].isin(kept)]
        parts.append(score_drops(rest))
    filled = [p for p in parts if len(p)]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=COLUMNS)


def worth_saying(courses: pd.DataFrame) -> pd.DataFrame:
    """Significant drops of a size that matters, one per subset, the surest first."""
    sizes = courses["change"].abs()
    other = ~courses["metric"].isin(("loss", "bits_per_byte")) & (courses["better"] == "lower")
    least = (DROP_WARNING * courses["before"].abs()).where(other, DROP_WARNING)
    fallen = courses[(courses["p_holm"] < SIGNIFICANT) & (sizes >= least)]
    fallen = fallen.assign(size=fallen["change"].abs()).sort_values(["p_holm", "size"], ascending=[True, False])
    return fallen.drop_duplicates("subset").drop(columns="size")


def explain(row: dict, courses: pd.DataFrame, tables: Tables) -> Explanation:
    """The first of the known causes for which there is evidence; `subset_regression` where there is none."""
    for look in (_tokenizer, _data_mix, _length, _coverage, by_settings, _forgetting):
        if (found := look(row, courses, tables)) is not None:
            return found
    lacking = "" if "data_mix" in tables or "sample_ids" in tables else "; no sampling mix was recorded"
    return Explanation(
        cause="subset_regression",
        confidence="medium",
        because=f"; what explains it is not in these tables{lacking}",
        fix="Give the sampling mix (a CSV with from_step, source, weight, or Recorder(samples=...)), then look at "
        "sampling share, length and tokenizer coverage of this subset; go back to the last good checkpoint if it "
        "matters.",
    )


def _finding(row: dict, courses: pd.DataFrame, tables: Tables) -> Finding:
    found = explain(row, courses, tables)
    unit = "nats per token" if row["metric"] == "loss" else "share" if row["better"] == "higher" else ""
    size = abs(row["latest"] - row["before"])
    first = found.step if found.step is not None else row["first_bad_step"]
    return Finding(
        cause=found.cause,
        playbook="T5",
        severity="critical" if abs(row["change"]) >= DROP_CRITICAL[row["better"]] else "warning",
        confidence=found.confidence,
        title=f"Subset {row['subset']} got worse by {size:.3g} ({row['metric']} {row['before']:.4g} to "
        f"{row['latest']:.4g}) since step {first}{found.because}.",
        fix=found.fix,
        source=SOURCE,
        culprit=Culprit(subset=str(row["subset"])),
        steps=Steps(first=int(first), last=int(row["last_step"])),
        evidence=(*_drop_facts(row, unit), *found.evidence, *_whole_facts(row, courses, tables, unit)),
        rules_out=tuple(_ruled_out(row, found, courses)),
    )


def _drop_facts(row: dict, unit: str) -> Iterator[Evidence]:
    interval = f"{row['confidence']:.0%} interval {row['low']:+.4f} to {row['high']:+.4f}, n = {row['n']}"
    table = "evals" if row["kind"] == "imported" else "eval_samples"
    yield Evidence(fact=f"drop of {row['subset']} beyond noise: change of {row['metric']}", value=float(row["change"]),
                   unit=unit, table=table, where=interval)  # fmt: skip
    yield Evidence(fact="p-value, adjusted for windows and subsets", value=float(row["p_holm"]), table=table)
    yield Evidence(fact="last evaluation that was as good as before", value=row["last_good_step"], unit="step")
    yield Evidence(fact="first evaluation that is worse", value=row["first_bad_step"], unit="step")


def _whole_facts(row: dict, courses: pd.DataFrame, tables: Tables, unit: str) -> Iterator[Evidence]:
    """What the aggregate shows meanwhile: the average over subsets, and the training loss."""
    scores = tables.get("evals")
    if scores is not None:
        same = scores[(scores["kind"] == row["kind"]) & (scores["metric"] == row["metric"])]
        wide = same.pivot_table(index="step", columns="subset", values="value")
        ends = [s for s in (row["last_good_step"], row["last_step"]) if s in wide.index]
        pair = wide.loc[ends].dropna(axis=1)
        if len(ends) == 2 and pair.shape[1] > 1:
            average = float(pair.mean(axis=1).diff().iloc[-1])
            hides = " hides it" if abs(average) < HIDDEN_SHARE * abs(row["change"]) else ""
            yield Evidence(fact=f"average over {pair.shape[1]} subsets{hides}: its change since the last good one",
                           value=average, unit=unit, table="evals")  # fmt: skip
    if "training_steps" in tables:
        job = job_steps(tables["training_steps"])
        levels = [level_at(job, "loss", int(s), window=5) for s in (row["last_good_step"], row["last_step"])]
        if all(pd.notna(level) for level in levels):
            yield Evidence(fact="change of the training loss meanwhile", value=levels[1] - levels[0],
                           unit="nats per token", table="training_steps")  # fmt: skip


def _ruled_out(row: dict, found: Explanation, courses: pd.DataFrame) -> Iterator[RuledOut]:
    if found.cause != "subset_regression":
        because = f"{row['subset']} did get worse, and it is known by what: {found.cause}"
        yield RuledOut(cause="subset_regression", because=because)
    yield RuledOut(cause="noise", because=f"p = {row['p_holm']:.1g} after correction for all windows and subsets")
    others = courses[(courses["subset"] != row["subset"]) & (courses["kind"] == row["kind"])]
    fine = others[others["p_holm"] >= SIGNIFICANT]
    if found.cause != "tokenizer_special_tokens" and len(fine) > 1:
        because = f"{len(fine)} other subsets of the same tokenizer hold, no recorded token count changed"
        yield RuledOut(cause="tokenizer_special_tokens", because=because)


def _tokenizer(row: dict, courses: pd.DataFrame, tables: Tables) -> Explanation | None:
    changed = retokenized(tables["eval_samples"], row["subset"]) if "eval_samples" in tables else None
    if changed is None or not row["earliest_step"] < changed["step"] <= row["first_bad_step"]:
        return None
    return Explanation(
        cause="tokenizer_special_tokens",
        confidence="high",
        because=f", when {changed['share']:.0%} of its samples got other token counts",
        fix="Evaluate with the tokenizer and the special tokens (begin, end, chat template) of the training; score the "
        "earlier checkpoints again before comparing.",
        evidence=(
            Evidence(fact="samples with another token count", value=changed["share"], unit="share",
                     table="eval_samples"),
            Evidence(fact="tokens of the same samples before", value=changed["before"], unit="tokens"),
            Evidence(fact="tokens of the same samples now", value=changed["after"], unit="tokens"),
        ),
        step=int(changed["step"]),
    )  # fmt: skip


def _data_mix(row: dict, courses: pd.DataFrame, tables: Tables) -> Explanation | None:
    here, table = _mix_changes_at(row, tables)
    related = here[here["is_related"]]
    cut = here[here["is_cut"] & (here["is_related"] if len(related) else True)]
    lost = -float(cut["change_share"].sum())
    if cut.empty or (related.empty and lost < LOST_SHARE):
        return None
    step, top = int(cut["step"].iloc[0]), cut.iloc[0]
    sure = row["p_holm"] < CERTAIN
    return Explanation(
        cause="data_mix_shift",
        confidence="high" if sure else "medium",
        because=f", when the sampling mix changed: {top['source']} went from {top['before_share']:.1%} to "
        f"{top['after_share']:.1%} of the samples",
        fix="Restore a share of the cut sources (replay of 20-30 %), anneal the mix instead of switching it, evaluate "
        f"a fixed set per source; resume from step {row['last_good_step']}.",
        evidence=(
            Evidence(fact="onset matches the change of the sampling mix", value=step, unit="step", table=table),
            *(Evidence(fact=f"weight of source {c.source} was cut", value=float(c.after_share), unit="share",
                       table=table, where=f"{c.before_share:.3g} before step {step}") for c in cut.itertuples()),
        ),
        step=step,
    )  # fmt: skip


def _mix_changes_at(row: dict, tables: Tables) -> tuple[pd.DataFrame, str]:
    """The change of the mix around the onset of a drop, planned or as recorded, and the table that tells it."""
    every = row["first_bad_step"] - row["last_good_step"]
    planned = mix_changes(tables["data_mix"] if "data_mix" in tables else DATA_MIX.empty(), row["subset"])
    here = mix_change_at(planned, first_step=row["earliest_step"], last_step=row["first_bad_step"])
    if len(here) or "sample_ids" not in tables:
        return here, "data_mix"
    used = recorded_mix_changes(tables["sample_ids"], row["subset"])
    near = used["step"].between(row["earliest_step"], row["first_bad_step"] + every)
    return used[near], "sample_ids"  # each drift has an onset of its own, a window apart


def _length(row: dict, courses: pd.DataFrame, tables: Tables) -> Explanation | None:
    if "eval_samples" not in tables or row["kind"] not in ("inline", "checkpoint"):
        return None
    samples = tables["eval_samples"]
    own = samples[samples["checkpoint"].isna() == (row["kind"] == "inline")]
    parts = change_by_length(own, row["subset"], before_step=row["last_good_step"], after_step=row["last_step"])
    if len(parts) < 2:
        return None
    longest, shorter = parts.iloc[-1], parts.iloc[:-1]
    if not (longest["low"] > DROP_WARNING and longest["low"] > shorter["high"].max()):
        return None
    return Explanation(
        cause="context_length_shift",
        confidence="medium",
        because=f", only in its longest samples ({longest['low_tokens']:.0f} tokens and more)",
        fix="Compare the context length of training and evaluation, and whether long samples are cut in training; "
        "train on longer windows or evaluate within the trained length.",
        evidence=tuple(
            Evidence(fact=f"change of the loss, samples of {p.low_tokens:.0f} to {p.high_tokens:.0f} tokens",
                     value=float(p.change), unit="nats per token", table="eval_samples", where=f"n = {p.n}")
            for p in parts.itertuples()
        ),
    )  # fmt: skip


def _coverage(row: dict, courses: pd.DataFrame, tables: Tables) -> Explanation | None:
    if "evals" not in tables:
        return None
    figures = coverage_changes(tables["evals"], row["subset"], before_step=row["earliest_step"],
                               after_step=row["last_step"])  # fmt: skip
    risen = figures[figures["after"] - figures["before"] >= COVERAGE_RISE_SHARE]
    if risen.empty:
        return None
    return Explanation(
        cause="tokenizer_special_tokens",
        confidence="medium",
        because=f", while its {risen['metric'].iloc[0]} rose from {risen['before'].iloc[0]:.3g} to "
        f"{risen['after'].iloc[0]:.3g}",
        fix="Compare tokenizer files, added tokens and chat template of training and evaluation; score the earlier "
        "checkpoints again with the present tokenizer.",
        evidence=tuple(
            Evidence(fact=f"{f.metric} now", value=float(f.after), table="evals", where=f"{f.before:.4g} before")
            for f in risen.itertuples()
        ),
    )


def _forgetting(row: dict, courses: pd.DataFrame, tables: Tables) -> Explanation | None:
    """The mix is known, did not change, and gives this subset nothing; others got better or held."""
    if "data_mix" not in tables:
        return None
    mix = tables["data_mix"]
    others = courses[(courses["subset"] != row["subset"]) & (courses["kind"] == row["kind"])]
    held = others[others["p_holm"] >= SIGNIFICANT]
    if held.empty:
        return None
    present = ", ".join(f"{m.source} {m.weight_share:.0%}" for m in _mix_at(mix, row["last_step"]).itertuples())
    return Explanation(
        cause="forgetting",
        confidence="medium",
        because=" while other subsets hold or improve; the sampling mix did not change then",
        fix="Replay 20-30 % of the earlier data, or lower the learning rate; check whether any source of the mix "
        "covers this subset.",
        evidence=(
            Evidence(fact="subsets that hold or improve", value=len(held), table="evals"),
            Evidence(fact="sampling mix at the end", value=present, table="data_mix"),
        ),
    )


def _mix_at(mix: pd.DataFrame, step: int) -> pd.DataFrame:
    so_far = mix[mix["from_step"] <= step]
    now = so_far[so_far["from_step"] == so_far["from_step"].max()]
    return now[now["weight_share"] > 0].sort_values("weight_share", ascending=False)
