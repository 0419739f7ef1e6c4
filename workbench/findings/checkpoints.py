"""Rules on saving checkpoints: training that stands still while it saves, one process that writes for all."""

from __future__ import annotations

import math
from collections.abc import Iterator

from workbench.analyses.checkpoint_saving import SavingSummary, checkpoint_saves, saving_summary, storage_figures
from workbench.findings.finding import Evidence, Finding, RuledOut, Steps
from workbench.findings.rule import Rule, Tables

STALL_SHARE_WARNING = 0.05  # of the wall time; less is the usual price of being able to resume
STALL_SHARE_CRITICAL = 0.20
STALL_LEAST_US = 1e6  # a tiny model saves in a few steps' time without anybody waiting
GIGA = 1e9


def find_checkpoint_stall(tables: Tables) -> list[Finding]:
    """One finding if training stands still for saving during more than `STALL_SHARE_WARNING` of the wall time.

    Args:
        tables: `events` and `training_steps`; `settings` for the storage and the saving interval.
    """
    settings = tables.get("settings")
    saves = checkpoint_saves(tables["events"], tables["training_steps"], settings)
    summary = saving_summary(saves, tables["training_steps"])
    if summary is None or not summary.blocked_share >= STALL_SHARE_WARNING or summary.blocked_us < STALL_LEAST_US:
        return []
    storage = storage_figures(settings)
    single = _is_single_writer(summary, storage)
    every = f" every {summary.every_steps:.0f} steps" if not math.isnan(summary.every_steps) else ""
    return [
        Finding(
            cause="checkpoint_single_writer" if single else "checkpoint_stall",
            playbook="E7",
            severity="critical" if summary.blocked_share >= STALL_SHARE_CRITICAL else "warning",
            confidence="medium" if summary.is_inferred or summary.saves < 2 else "high",
            title=f"Training stands still for {summary.blocked_share:.0%} of the time while it saves: "
            f"{_seconds(summary.save_us)} s per checkpoint{every}, as long as {_ratio(summary):,.0f} steps"
            + (f"; one process writes for {summary.ranks} ranks." if single and summary.ranks > 1 else "."),
            fix=_fix(summary, single),
            source="saves against the time between step records; thresholds ours",
            steps=Steps(first=int(saves["step"].min()), last=int(saves["step"].max()), list=_listed(saves["step"]))
            if saves["step"].notna().any()
            else Steps(),
            saves_us_per_step=summary.blocked_us_per_step,
            evidence=(*_time_facts(summary), *_storage_facts(summary, storage)),
            rules_out=tuple(_ruled_out(summary, storage)),
        )
    ]


def _is_single_writer(summary: SavingSummary, storage: dict[str, float]) -> bool:
    seen = summary.ranks > 1 and summary.writers == 1 and summary.waiting_ranks >= (summary.ranks - 1) / 2
    return seen or storage.get("writers") == 1


def _fix(summary: SavingSummary, single: bool) -> str:
    first = "Let every rank write its own shard" if single else "Save asynchronously and sharded, without replicas"
    often = summary.blocked_us / summary.saves / (STALL_SHARE_WARNING * max(summary.step_us, 1.0))
    return (
        f"{first}{', asynchronously' if single else ''}; save less often (every {often:,.0f} steps or more would keep "
        "it below 5 % as it is), keep optimizer states out of the frequent saves; measure again after the change."
    )


def _time_facts(summary: SavingSummary) -> Iterator[Evidence]:
    yield Evidence(fact="gap between log times after a save, beyond the steps in between",
                   value=summary.blocked_us / summary.saves / 1e6, unit="s", table="training_steps",
                   where=f"mean of {summary.saves} saves")  # fmt: skip
    yield Evidence(fact="seconds of a save", value=summary.save_us / 1e6, unit="s", table="events")
    yield Evidence(fact="seconds of a step", value=summary.step_us / 1e6, unit="s", table="training_steps")
    yield Evidence(fact="all saves together", value=summary.blocked_us / 1e6, unit="s", table="events")
    yield Evidence(fact="share of wall time that saving takes", value=summary.blocked_share, unit="share",
                   where=f"of {summary.elapsed_us / 1e6:,.0f} s")  # fmt: skip
    if summary.is_stated:
        per_step = summary.elapsed_us / summary.steps / 1e6
        yield Evidence(fact="the stated step time hides it: wall time per step", value=per_step, unit="s",
                       table="training_steps", where=f"stated {summary.step_us / 1e6:.3g} s")  # fmt: skip


def _storage_facts(summary: SavingSummary, storage: dict[str, float]) -> Iterator[Evidence]:
    size, rate, writers = (storage.get(k) for k in ("bytes_per_rank", "write_bytes_per_s", "writers"))
    if size:
        own = size / (summary.save_us / 1e6) / GIGA
        yield Evidence(fact="write rate of one rank", value=own, unit="GB/s", table="settings")
        if writers:
            yield Evidence(fact="write rate of all ranks", value=own * writers, unit="GB/s", table="settings")
    if rate:
        yield Evidence(fact="write rate of the disk alone", value=rate / GIGA, unit="GB/s", table="settings")


def _ruled_out(summary: SavingSummary, storage: dict[str, float]) -> Iterator[RuledOut]:
    yield RuledOut(cause="data_starved", because="the time is lost after saves, not at the begin of every step")
    words = "stated step time" if summary.is_stated else "time between two other step records"
    yield RuledOut(cause="slow_op", because=f"the {words} is a steady {summary.step_us / 1e6:.3g} s")
    size, rate = storage.get("bytes_per_rank"), storage.get("write_bytes_per_s")
    if size and rate:
        used = size * storage.get("writers", 1.0) / (summary.save_us / 1e6) / rate
        if used < 0.5:
            yield RuledOut(cause="disk bandwidth", because=f"saving uses {used:.0%} of what the disk writes")


def _ratio(summary: SavingSummary) -> float:
    return summary.save_us / max(summary.step_us, 1.0)


def _seconds(us: float) -> str:
    return f"{us / 1e6:,.0f}" if us >= 1e7 else f"{us / 1e6:.2g}"


def _listed(steps: object) -> tuple[int, ...]:
    return tuple(sorted({int(s) for s in steps}))[:20]  # type: ignore[attr-defined]


RULES: tuple[Rule, ...] = (
    Rule(
        causes=("checkpoint_stall", "checkpoint_single_writer"),
        needs=("events", "training_steps"),
        uses=("settings",),
        find=find_checkpoint_stall,
    ),
)
