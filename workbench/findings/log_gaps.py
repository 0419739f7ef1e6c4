"""Pauses and oddities of logs -> pauses that nothing explains; and harmless reasons of what alarms in a healthy log."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd

from workbench.analyses.log_gaps import LONG_FIRST_STEP, Oddities, covered_us, log_gaps, oddities
from workbench.analyses.settings import setting
from workbench.findings.finding import Culprit, Evidence, Finding, RuledOut, Steps
from workbench.findings.rule import Rule

SHARE_WARNING = 0.05  # of the time, as for saving and evaluating
LINES_LEAST = 10  # step lines of the rank: fewer do not tell what is usual
LISTED_STEPS = 20
NORM_FALLS = 2.0
WORDS = {"eval": "evaluation", "checkpoint": "saving", "compile": "compilation"}


def find_unexplained_pauses(training_steps: pd.DataFrame, events: pd.DataFrame) -> list[Finding]:
    """One finding if the log of a rank pauses between steps, and no evaluation, saving or compilation explains it.

    Args:
        training_steps: table `training_steps`.
        events: table `events`: pauses (kind gap) and what happened in them.
    """
    gaps = log_gaps(events)
    open_ = gaps[gaps["kind"] == "unexplained"]
    lines = training_steps.groupby("rank_id").size()
    open_ = open_[open_["rank_id"].map(lines) >= LINES_LEAST]
    if open_.empty:
        return []
    per_rank = (open_["gap_us"] - open_["explained_us"]).groupby(open_["rank_id"]).sum()
    rank, lost_us = int(str(per_rank.idxmax())), float(per_rank.max())
    covered = covered_us(training_steps)
    if not lost_us >= SHARE_WARNING * covered:
        return []
    own = open_[open_["rank_id"] == rank]
    alone = len(per_rank) == 1 and bool((training_steps["rank_id"] != rank).any())
    steps = int(training_steps.loc[training_steps["rank_id"] == rank, "step"].pipe(lambda s: s.max() - s.min() + 1))
    return [
        Finding(
            cause="stall_steps",
            sub_cause="pause_between_steps",
            playbook="T7",
            severity="warning",
            confidence="medium",
            title=f"The log of rank {rank} pauses {len(own)} time(s) between steps for {lost_us / 1e6:,.0f} s in all "
            f"({lost_us / covered:.0%} of the time); the step time does not show it, and no line explains it.",
            fix="Look at what runs between the steps: callbacks, saving without a log line, waiting for storage; "
            "record with workbench.probes.Recorder, which times each callback.",
            source="time between step lines beyond what the steps take; threshold ours",
            culprit=Culprit(rank=rank if alone else None),
            steps=Steps(first=int(own["step"].min()), last=int(own["step"].max()),
                        list=tuple(int(s) for s in own["step"][:LISTED_STEPS])),
            saves_us_per_step=lost_us / steps,
            evidence=(
                Evidence(fact="pauses that nothing explains", value=len(own), table="events", where=f"rank {rank}"),
                Evidence(fact="time lost in them", value=lost_us / 1e6, unit="s", table="events"),
                Evidence(fact="share of the time", value=lost_us / covered, unit="share", table="events"),
                Evidence(fact="longest", value=float(own["gap_us"].max()) / 1e6, unit="s", table="events"),
            ),
        )
    ]  # fmt: skip


def find_harmless(
    training_steps: pd.DataFrame, events: pd.DataFrame | None = None, settings: pd.DataFrame | None = None
) -> list[Finding]:
    """One finding of cause `none` if the log shows what often alarms and has a harmless reason.

    That is a loss of 0 from pipeline stages before the last, or pauses that evaluation or saving explain. With it are
    told the long first step, the learning rate of the warm-up and the gradient norm at the beginning.

    Args:
        training_steps: table `training_steps`.
        events: table `events`, or None.
        settings: table `settings`, or None: number of pipeline stages.
    """
    odd, gaps = oddities(training_steps), log_gaps(events)
    if odd.loss_rank is None and not _has_stages(settings):
        odd = replace(odd, silent_ranks=())  # a loss of 0 everywhere needs stages to be harmless
    explained = gaps[gaps["kind"].isin(["eval", "checkpoint"])]
    if not odd.silent_ranks and explained.empty:
        return []
    facts = [
        *_loss_facts(odd, settings),
        *_first_step_facts(odd),
        *_pause_facts(explained, gaps),
        *_share_facts(events, covered_us(training_steps)),
    ]
    return [
        Finding(
            cause="none",
            playbook="none",
            severity="info",
            confidence="high",
            title=f"Healthy: {', '.join(_reasons(odd, explained))}.",
            fix="Change nothing.",
            source="loss callback of MindSpore Transformers, which names the last card; budget of 5 % for evaluation",
            evidence=tuple(facts),
            rules_out=_ruled_out(odd, explained),
        )
    ]


def _reasons(odd: Oddities, explained: pd.DataFrame) -> list[str]:
    """What looks odd, with its harmless reason."""
    reasons = (
        ("the loss of 0 is that of earlier pipeline stages", bool(odd.silent_ranks)),
        ("the pauses are evaluation", (explained["kind"] == "eval").any()),
        ("the pauses are saving", (explained["kind"] == "checkpoint").any()),
        ("the first step holds the compilation", _is_long(odd)),
    )
    return [text for text, told in reasons if told]


def _stages(settings: pd.DataFrame | None) -> str | None:
    return setting(settings, "pipeline_stage", "pipeline_stages", "pipeline_parallel", "pp", "num_stages")


def _has_stages(settings: pd.DataFrame | None) -> bool:
    stages = _stages(settings)
    return stages is not None and stages.isdigit() and int(stages) > 1


def _is_long(odd: Oddities) -> bool:
    return odd.first_step <= 1 and odd.first_step_us >= LONG_FIRST_STEP * odd.typical_us


def _loss_facts(odd: Oddities, settings: pd.DataFrame | None) -> list[Evidence]:
    if not odd.silent_ranks:
        return []
    silent = Evidence(fact="ranks whose loss is 0 at every step (pipeline stages before the last)",
                      value=", ".join(map(str, odd.silent_ranks)), table="training_steps")  # fmt: skip
    if odd.loss_rank is None:
        return [silent, Evidence(fact="not known: the loss; give the log of the last rank, whose stage prints it")]
    facts = [
        silent,
        Evidence(fact=f"loss of rank {odd.loss_rank}, of the last stage, at first", value=odd.first_loss,
                 unit="nats per token", table="training_steps"),
        Evidence(fact=f"loss of rank {odd.loss_rank}, of the last stage, at last", value=odd.last_loss,
                 unit="nats per token", table="training_steps"),
    ]  # fmt: skip
    vocabulary = setting(settings, "vocab_size", "vocabulary")
    if vocabulary is not None and vocabulary.isdigit():
        facts.append(Evidence(fact="ln(vocabulary), the loss of guessing", value=math.log(int(vocabulary)),
                              unit="nats per token", table="settings"))  # fmt: skip
    stages = _stages(settings)
    if stages is not None:
        facts.append(Evidence(fact="pipeline stages", value=stages, table="settings"))
    return facts


def _first_step_facts(odd: Oddities) -> list[Evidence]:
    facts = []
    if _is_long(odd):
        facts += [
            Evidence(fact="time of the first step, which holds the compilation", value=odd.first_step_us / 1e6,
                     unit="s", table="training_steps"),
            Evidence(fact="typical step", value=odd.typical_us / 1e6, unit="s", table="training_steps"),
        ]  # fmt: skip
    if odd.rate_rises and odd.first_step <= 1:
        facts.append(Evidence(fact="learning rate at the first step, where the warm-up begins", value=odd.first_rate,
                              table="training_steps"))  # fmt: skip
    if odd.first_step <= 1 and odd.first_norm > NORM_FALLS * odd.last_norm:
        facts += [
            Evidence(fact="gradient norm at the first step, usual at random initialisation", value=odd.first_norm,
                     unit="L2 norm", table="training_steps"),
            Evidence(fact="gradient norm at the end", value=odd.last_norm, unit="L2 norm", table="training_steps"),
        ]  # fmt: skip
    return facts


def _pause_facts(explained: pd.DataFrame, gaps: pd.DataFrame) -> list[Evidence]:
    facts = []
    for kind, rows in explained.groupby("kind"):
        rank = rows[rows["rank_id"] == rows["rank_id"].iloc[0]]
        what = WORDS[str(kind)]
        facts += [
            Evidence(fact=f"pauses that {what} explains", value=len(rank), table="events",
                     where=f"rank {rank['rank_id'].iloc[0]}, steps {', '.join(map(str, rank['step'][:LISTED_STEPS]))}"),
            Evidence(fact=f"a pause, of which {float(rank['explained_us'].median()) / 1e6:.3g} s are {what}",
                     value=float(rank["gap_us"].median()) / 1e6, unit="s", table="events"),
        ]  # fmt: skip
    if facts:
        left = int((gaps["kind"] == "unexplained").sum())
        facts.append(Evidence(fact="pauses that nothing explains", value=left, table="events"))
    return facts


def _share_facts(events: pd.DataFrame | None, covered: float) -> list[Evidence]:
    """Share of the time since the first step that evaluations and savings take, also those after the last step."""
    facts = []
    for kind in ("eval", "checkpoint"):
        own = pd.DataFrame() if events is None else events[(events["kind"] == kind) & events["duration_us"].notna()]
        if own.empty:
            continue
        took_us = float(own.groupby("rank_id")["duration_us"].sum().max())
        last_us = float(own.sort_values("step")["duration_us"].iloc[-1])
        facts.append(Evidence(fact=f"share of the time in {WORDS[kind]}", value=took_us / (covered + last_us),
                              unit="share", table="events"))  # fmt: skip
    return facts


def _ruled_out(odd: Oddities, explained: pd.DataFrame) -> tuple[RuledOut, ...]:
    ruled = []
    if odd.silent_ranks:
        because = "only the last stage has a loss"
        because += "" if odd.loss_rank is None else f": rank {odd.loss_rank} prints {odd.last_loss:.3g}"
        ruled.append(RuledOut(cause="label_leak", because=because))
    if (explained["kind"] == "eval").any():
        ruled.append(RuledOut(cause="checkpoint_stall", because="an evaluation stands at the end of each pause"))
    if _is_long(odd):
        ruled.append(RuledOut(cause="recompile", because="only the first step is long"))
    return tuple(ruled)


RULES: tuple[Rule, ...] = (
    Rule(
        causes=("stall_steps",),
        needs=("training_steps", "events"),
        find=lambda t: find_unexplained_pauses(t["training_steps"], t["events"]),
    ),
    Rule(
        causes=("none",),
        needs=("training_steps",),
        uses=("events", "settings"),
        find=lambda t: find_harmless(t["training_steps"], t.get("events"), t.get("settings")),
    ),
)
