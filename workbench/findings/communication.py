"""Rules on communication: slow links, many small collectives, collectives not hidden, pipelines not filled."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from workbench.analyses.statistics import MAD_TO_SIGMA, mad
from workbench.findings.finding import Culprit, Evidence, Finding
from workbench.findings.kernels import severity_of

SLOWER_LINK = 1.15  # links of one kind differ by a few percent
LINK_SIGMAS = 8.0
LINKS_LISTED = 4
LATENCY_SHARE_WARNING = 0.30
LATENCY_OF_STEP_WARNING = 0.05
OPERATIONS_LEAST = 16  # a step with fewer collectives cannot gain much by fusing them
BUCKET_BYTES = 256 << 20  # larger buckets gain next to no bandwidth and hide less
HIDDEN_SHARE_LEAST = 0.005  # less overlap than this is the rounding of start times
MICRO_BATCHES_PER_STAGE = 4  # "negligible when M >= 4 K": GPipe (Huang et al., NeurIPS 2019), section 2.3
EXPOSED_SHARE_WARNING = 0.5  # more than half of each step: the job communicates, and computes beside it
BUBBLE_SEEN_LEAST = 0.5  # an interleaved schedule waits less than the model says


def find_slow_link(summary: pd.DataFrame, steps: pd.DataFrame) -> list[Finding]:
    """Links that are slower than their peers in the typical step.

    Args:
        summary: as `link_summary` returns.
        steps: as `device_steps` returns.
    """
    if len(summary) < 2:
        return []
    logs = np.log(summary["ratio"].to_numpy(dtype=float))
    limit = max(math.log(SLOWER_LINK), LINK_SIGMAS * MAD_TO_SIGMA * mad(logs))
    slow = summary[logs > limit]
    return [_slow_link(row, len(slow), len(summary), steps) for _, row in slow.head(LINKS_LISTED).iterrows()]


def find_unfused_allreduce(latency: pd.DataFrame, steps: pd.DataFrame) -> list[Finding]:
    """Many small collectives whose time is a fixed cost per operation.

    Args:
        latency: as `latency_share` returns.
        steps: as `device_steps` returns.
    """
    costly = latency["latency_us_per_step"] >= LATENCY_OF_STEP_WARNING * _wall(steps)  # beside a slow link too
    is_bound = (latency["share"] >= LATENCY_SHARE_WARNING) | costly
    many = latency[is_bound & (latency["per_step"] >= OPERATIONS_LEAST)]
    found = []
    for _, row in many.iterrows():
        buckets = max(1, math.ceil(row["per_step"] * row["bytes_per_op"] / BUCKET_BYTES))
        gone_us = float(row["latency_us_per_step"]) * (1 - min(1.0, buckets / row["per_step"]))
        saves_us = exposed_saving(
            steps, transfer_us=float(row["transfer_us_per_step"]), gone_us=gone_us, operations=buckets
        )
        found.append(
            Finding(
                cause="unfused_allreduce",
                playbook="T4",
                severity=severity_of(saves_us, _wall(steps)),
                confidence="high",
                title=f"{row['per_step']:,.0f} {row['op_type']} operations per step of "
                f"{row['bytes_per_op'] / 1e6:.1f} MB each: "
                f"{row['share']:.0%} of their time is the fixed {row['alpha_us']:.0f} us per operation.",
                fix="Fuse gradients into buckets (all_reduce fusion: comm_fusion in set_auto_parallel_context, or "
                "parameter.comm_fusion), of 100 to 300 MB each.",
                source="alpha-beta model (Hockney 1994); threshold ours",
                culprit=Culprit(op=str(row["op_type"])),
                saves_us_per_step=saves_us,
                evidence=(
                    Evidence(fact="operations per step", value=float(row["per_step"]), table="collectives"),
                    Evidence(
                        fact="fixed time per operation", value=float(row["alpha_us"]), unit="us", table="collectives"
                    ),
                    Evidence(fact="share of fixed cost", value=float(row["share"]), unit="share", table="collectives"),
                ),
            )
        )
    return found


def find_no_overlap(overlap: pd.DataFrame, steps: pd.DataFrame, *, backward_us: float) -> list[Finding]:
    """Several large collectives per step, none of which runs while the device computes.

    Args:
        overlap: as `collective_overlap` returns.
        steps: as `device_steps` returns.
        backward_us: computing of the last backward pass, in which gradients become ready one after the other.
    """
    several = overlap[overlap["operations"] >= 2]
    if several.empty or (several["overlapped_us"].median() >= HIDDEN_SHARE_LEAST * several["transfer_us"].median()):
        return []
    count, transfer_us = float(several["operations"].median()), float(several["transfer_us"].median())
    saves_us = min(transfer_us, backward_us) * (count - 1) / count  # the last gradient has nothing left to hide behind
    return [
        Finding(
            cause="no_overlap",
            playbook="T4",
            severity=severity_of(saves_us, _wall(steps)),
            confidence="high",
            title=f"None of the {count:.0f} gradient collectives per step ({transfer_us / 1e3:.1f} ms) runs "
            "while the device "
            f"computes; {saves_us / 1e3:.1f} ms could.",
            fix="Start the reduction of a layer's gradients during the backward pass (several fusion buckets "
            "instead of "
            "one at the end, no gradient accumulation barrier before it).",
            source="overlap of transfers with computing, measured on the device tasks",
            saves_us_per_step=saves_us,
            evidence=(
                Evidence(fact="large collectives per step", value=count, table="collectives"),
                Evidence(fact="their transfer time per step", value=transfer_us, unit="us", table="collectives"),
                Evidence(fact="of it while computing", value=float(several["overlapped_us"].median()), unit="us"),
                Evidence(fact="computing of the last backward pass", value=backward_us, unit="us", table="kernels"),
            ),
        )
    ]


def find_exposed_communication(
    steps: pd.DataFrame, found: Sequence[Finding] = (), groups: pd.DataFrame | None = None
) -> list[Finding]:
    """Half of the typical step is the transfer of communication that nothing hides, and no better known cause says why.

    Waiting for late ranks and for other pipeline stages does not count: it has causes of its own. Of the rest goes what
    the fixes of `found` give back.

    Args:
        steps: as `device_steps` returns.
        found: findings of the other rules on the same steps, with their gains.
        groups: as `communication_groups` returns, or None: names the group that takes most.
    """
    exposed_us, wall_us = _typical(steps, "transfer_us"), _typical(steps, "wall_us")
    gone_us = sum(f.saves_us_per_step or 0.0 for f in found)
    if not wall_us > gone_us or exposed_us - gone_us < EXPOSED_SHARE_WARNING * (wall_us - gone_us):
        return []
    hideable_us = min(exposed_us, max(float((steps["computing_us"] - steps["overlapped_us"]).median()), 0.0))
    facts = [
        Evidence(fact="exposed transfer", value=exposed_us, unit="us per step", table="step_time"),
        Evidence(fact="share of the step", value=exposed_us / wall_us, unit="share", table="step_time"),
        Evidence(fact="computing", value=_typical(steps, "computing_us"), unit="us per step", table="step_time"),
        Evidence(fact="communication hidden by it", value=_typical(steps, "overlapped_us"), unit="us per step"),
    ]
    return [
        Finding(
            cause="exposed_communication",
            playbook="T4",
            severity="warning",
            confidence="medium",
            title=f"{exposed_us / 1e3:.1f} ms of each step of {wall_us / 1e3:.1f} ms ({exposed_us / wall_us:.0%}) is "
            f"communication that no computing hides; hiding alone can save at most {hideable_us / 1e3:.1f} ms.",
            fix="Communicate less often or less (accumulate gradients over several batches, larger batches per rank, "
            "shard over fewer ranks), check the transport of the largest group, and overlap what is left.",
            source="exposed transfer in the step's device time, median over ranks and steps; threshold ours",
            saves_us_per_step=hideable_us,
            evidence=(*facts, *_largest_group(groups)),
        )
    ]


def find_pipeline_bubble(steps: pd.DataFrame, stages: pd.DataFrame, micro: int | None) -> list[Finding]:
    """Too few micro-batches to fill the pipeline.

    With `p` stages and `m` micro-batches the stages wait `(p - 1) / m` of their work (1F1B, GPipe). The gain is what
    that falls by at 4 micro-batches per stage.

    Args:
        steps: as `device_steps` returns.
        stages: as `pipeline_stages` returns.
        micro: micro-batches per step, None if unknown.
    """
    count = int(stages["stage"].nunique())
    if micro is None or count < 2 or micro >= MICRO_BATCHES_PER_STAGE * count:
        return []
    rows = steps.assign(stage=steps["rank_id"].map(stages.set_index("rank_id")["stage"]))
    per_stage = rows.groupby("stage")[["computing_us", "pipeline_wait_us", "wall_us"]].median()
    work_us = float(per_stage["computing_us"].max())
    bubble_us = (count - 1) * work_us / micro
    waited_us = float(per_stage["pipeline_wait_us"].median())
    if waited_us < BUBBLE_SEEN_LEAST * bubble_us:
        return []
    wanted = MICRO_BATCHES_PER_STAGE * count
    saves_us = (count - 1) * work_us * (1 / micro - 1 / wanted)
    return [
        Finding(
            cause="pipeline_bubble",
            sub_cause="few_micro_batches",
            playbook="T4",
            severity=severity_of(saves_us, _wall(steps)),
            confidence="high",
            title=f"{micro} micro-batches do not fill {count} pipeline stages: stages wait "
            f"{waited_us / 1e3:.1f} ms per step for "
            f"each other ({waited_us / _wall(steps):.0%}).",
            fix=f"Use {wanted} micro-batches or more (smaller ones, at the same batch), or an interleaved schedule.",
            source="bubble (p - 1) / m and m >= 4 p: GPipe, NeurIPS 2019, section 2.3",
            saves_us_per_step=saves_us,
            evidence=(
                Evidence(fact="micro-batches per step", value=micro, table="collectives"),
                Evidence(fact="pipeline stages", value=count, table="collectives"),
                *(Evidence(fact=f"stage {s} waits for the others", value=float(w), unit="us per step",
                           where=f"stage {s}")
                  for s, w in per_stage["pipeline_wait_us"].items()),
            ),
        )
    ]  # fmt: skip


def exposed_saving(steps: pd.DataFrame, *, transfer_us: float, gone_us: float, operations: float) -> float:
    """What a step gains if its collectives take `gone_us` less.

    What is hidden stays hidden: of the shorter transfer at least the last operation remains exposed, and what does not
    fit behind the computing that hides communication today.

    Args:
        steps: as `device_steps` returns.
        transfer_us: transfer of a step's collectives now.
        gone_us: how much of it would be gone.
        operations: how many there would be.
    """
    typical = steps[["transfer_us", "late_rank_us", "overlapped_us"]].median()
    exposed_us = min(float(typical["transfer_us"] + typical["late_rank_us"]), transfer_us)
    hidden_us = max(transfer_us - exposed_us, 0.0)
    after_us = transfer_us - gone_us
    return max(0.0, exposed_us - max(after_us / max(operations, 1.0), after_us - hidden_us))


def _slow_link(row: pd.Series, slow: int, links: int, steps: pd.DataFrame) -> Finding:
    link = f"{row['link']}" if row["is_global"] else f"{row['link']} in group {row['group_id']}"
    wall_us, speed, peers = _wall(steps), float(row["bandwidth_bytes_per_s"]), float(row["peer_bandwidth_bytes_per_s"])
    excess_us = float(row["excess_us"])
    transfer_us = float(steps["transfer_us"].median() + steps["overlapped_us"].median())
    saves_us = exposed_saving(steps, transfer_us=max(transfer_us, excess_us), gone_us=excess_us, operations=2)
    return Finding(
        cause="slow_link",
        playbook="T4",
        severity=severity_of(saves_us, wall_us),
        confidence="high" if row["steps"] > 1 else "medium",
        title=f"Link {link} moves {speed / 1e9:.1f} GB/s, its peers {peers / 1e9:.1f} GB/s; "
        "every collective "
        "over it waits for it.",
        fix=f"Check cable, port and error counters of link {link} (hccn_tool, npu-smi), or leave it out of the group.",
        source="median over steps of each link against links of its transport; 15 % and 8 robust deviations, ours",
        culprit=Culprit(link=link),
        saves_us_per_step=saves_us,
        evidence=(
            Evidence(
                fact="bandwidth",
                value=speed / 1e9,
                unit="GB/s",
                table="links",
                where=f"{link}, {row['transport']}",
            ),
            Evidence(fact="median bandwidth of its peers", value=peers / 1e9, unit="GB/s", table="links"),
            Evidence(fact=f"slow links of {links}", value=slow, unit="links"),
        ),
    )


def _largest_group(groups: pd.DataFrame | None) -> list[Evidence]:
    """Facts on the communication group that takes most of the time."""
    if groups is None or groups.empty:
        return []
    group = groups.iloc[0]
    where = f"group {group['group_id']} ({group['kind']}), ranks {', '.join(map(str, group['ranks'][:8]))}"
    facts = {"share": ("share of all communication time", "share"), "elapsed_us": ("its operations", "us per step"),
             "wait_us": ("of it waiting for the last rank", "us per step"),
             "bytes_per_step": ("bytes moved", "bytes per step")}  # fmt: skip
    return [
        Evidence(fact=fact, value=float(group[column]), unit=unit, table="collectives", where=where)
        for column, (fact, unit) in facts.items()
        if pd.notna(group[column])
    ]


def _typical(steps: pd.DataFrame, column: str) -> float:
    """Median over ranks of the median over steps: a rank with more profiled steps counts no more than another."""
    return float(steps.groupby("rank_id")[column].median().median())


def _wall(steps: pd.DataFrame) -> float:
    return float(steps["wall_us"].median())
