"""What logs say on the network of a job -> collectives that run over sockets although the job spans hosts."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

import pandas as pd

from workbench.findings.finding import Confidence, Evidence, Finding, RuledOut, Severity
from workbench.tables import LOG_MESSAGES

SYNC_SHARE_LEAST = 0.1  # of the step: below it a faster transport gives back little
SYNC_SHARE_CRITICAL = 0.5
EVEN_SHARE = 0.1  # slowest over fastest rank: all wait for the link alike, none is late
SAME_COMPUTE_SHARE = 0.1
REASONS = {
    "disabled": "RDMA is turned off by NCCL_IB_DISABLE",
    "no_ib_device": "no RDMA device was found",
    "no_ib_library": "the RDMA library could not be opened",
}
NETS = ["file", "host", "transport", "reason", "line", "ranks"]


def job_networks(log_messages: pd.DataFrame) -> pd.DataFrame:
    """What each host of each log uses between hosts: the transport it says it uses, else the ones that it opens.

    Returns:
        One row per (file, host): transport ("socket", "ib", or another word of the log), reason (key of `REASONS` or
        missing), line (first that tells), ranks (of the largest communicator; 0 unknown). Empty where no line tells.
    """
    rows = LOG_MESSAGES.check(log_messages)
    found: dict[tuple[str, str], dict[str, object]] = {}
    for row in rows[rows["kind"] == "network_transport"].sort_values(["file", "line"]).itertuples():
        facts = json.loads(str(row.fields))
        net = found.setdefault((str(row.file), str(facts.get("host", ""))), {"reason": None, "ranks": 0})
        word, text = facts.get("transport"), str(row.text)
        if "ranks" in facts:
            net["ranks"] = max(int(str(net["ranks"])), int(facts["ranks"]))
        elif word in REASONS or facts.get("disabled") == 1:
            net["reason"] = word if word in REASONS else "disabled"
        elif "Using network" in text or (word in ("socket", "ib") and "transport" not in net):
            net |= {"transport": word, "line": int(str(row.line))}
    told = [{"file": f, "host": h, **net} for (f, h), net in found.items() if "transport" in net]
    return pd.DataFrame(told, columns=NETS)


def find_no_rdma_fallback(
    log_messages: pd.DataFrame, runs: pd.DataFrame | None = None, efficiency: pd.DataFrame | None = None
) -> list[Finding]:
    """One finding per job whose collectives between hosts run over sockets.

    A job on one host may say so, too: nothing goes over its network, so that it is left out.

    Args:
        log_messages: table `log_messages`.
        runs: as `workbench.analyses.scaling_logs.logged_runs` returns: step and gradient synchronisation times.
        efficiency: as `workbench.analyses.scaling.scaling_efficiency` returns, with the column run.
    """
    nets = job_networks(log_messages)
    jobs = {file: _job(str(file), runs) for file in nets["file"].unique()}
    names = {f: str(PurePosixPath(str(f)).parent) if job is None else str(job["run"]) for f, job in jobs.items()}
    found = []
    for _, told in nets.groupby(nets["file"].map(names)):
        hosts = told.sort_values("transport").drop_duplicates("host", keep="last")  # socket wins where logs differ
        sockets = hosts[hosts["transport"] == "socket"]
        run = jobs[told["file"].iloc[0]]
        several = len(hosts) > 1 or _says_between_hosts(log_messages, set(told["file"]))
        sync_share = _share(run)
        if len(sockets) and (several or sync_share >= SYNC_SHARE_CRITICAL):
            found.append(_finding(sockets, hosts, run, runs, efficiency))
    return found


def _says_between_hosts(log_messages: pd.DataFrame, files: set[str]) -> bool:
    """A channel over the network is there only between hosts."""
    text = log_messages.loc[log_messages["file"].isin(files), "text"].astype("string")
    return bool(text.str.contains(" via NET/Socket", regex=False, na=False).any())


def _job(file: str, runs: pd.DataFrame | None) -> pd.Series | None:
    """The job that a log belongs to; that of a lone job also for logs without steps."""
    if runs is None or runs.empty:
        return None
    mine = runs[runs["run"].isin([file, str(PurePosixPath(file).parent)])]
    return mine.iloc[0] if len(mine) else runs.iloc[0] if len(runs) == 1 else None


def _share(run: pd.Series | None) -> float:
    return float("nan") if run is None else float(run["gradient_sync_us"] / run["step_us"])


def _finding(
    sockets: pd.DataFrame,
    hosts: pd.DataFrame,
    run: pd.Series | None,
    runs: pd.DataFrame | None,
    efficiency: pd.DataFrame | None,
) -> Finding:
    share = _share(run)
    known = share == share
    loss = _loss(run, efficiency)
    severe = share >= SYNC_SHARE_CRITICAL or loss >= SYNC_SHARE_CRITICAL
    small = (known and share < SYNC_SHARE_LEAST) or (not known and loss < SYNC_SHARE_LEAST)
    severity: Severity = "critical" if severe else "info" if small else "warning"
    reasons = [REASONS[str(r)] for r in sockets["reason"].dropna().unique()]
    sure = (bool(reasons) and not small) or severe
    confidence: Confidence = "high" if sure else "medium"
    cost = f"; synchronising gradients takes {share:.0%} of the step" if known else ""
    why = f": {reasons[0]}" if reasons else ""
    return Finding(
        cause="no_rdma_fallback",
        playbook="T4",
        severity=severity,
        confidence=confidence,
        title=f"The collectives of {len(sockets)} of {len(hosts)} hosts run over TCP sockets{why}{cost}.",
        fix="Make the RDMA devices visible to the job (driver, container device mapping, memlock limit), unset "
        "NCCL_IB_DISABLE, choose adapter and interface (NCCL_IB_HCA, NCCL_SOCKET_IFNAME; on Ascend the RoCE link and "
        "HCCL_SOCKET_IFNAME), check the bandwidth with a collective benchmark, and only then repeat the run.",
        source="start-up lines of NCCL, timers of Megatron; thresholds ours",
        saves_us_per_step=float(run["gradient_sync_us"]) if run is not None and known else None,
        evidence=(
            *_transport_facts(sockets, reasons),
            *_efficiency_facts(run, efficiency),
            *_time_facts(run, runs),
        ),
        rules_out=_ruled_out(run),
    )


def _loss(run: pd.Series | None, efficiency: pd.DataFrame | None) -> float:
    mine = None if run is None or efficiency is None else efficiency[efficiency["run"] == run["run"]]
    return float("nan") if mine is None or mine.empty else 1 - float(mine["efficiency_share"].iloc[0])


def _transport_facts(sockets: pd.DataFrame, reasons: list[str]) -> list[Evidence]:
    facts = [
        Evidence(fact=f"transport between hosts on {net.host or 'a host'}", value="socket", table="log_messages",
                 where=f"{net.file}, line {net.line}")
        for net in sockets.itertuples()
    ]  # fmt: skip
    return facts + [Evidence(fact="reason that the log gives", value=r, table="log_messages") for r in reasons]


def _efficiency_facts(run: pd.Series | None, efficiency: pd.DataFrame | None) -> list[Evidence]:
    mine = None if run is None or efficiency is None else efficiency[efficiency["run"] == run["run"]]
    if mine is None or mine.empty:
        return []
    row = mine.iloc[0]
    text = f"at {row['ideal_speed_up']:.3g} times the devices of the smallest job"
    return [
        Evidence(fact=f"scaling efficiency {text}", value=float(row["efficiency_share"]), unit="share",
                 table="training_steps", where=str(run["run"]) if run is not None else ""),
        Evidence(fact=f"speed-up {text}", value=float(row["speed_up"]), unit="times", table="training_steps"),
    ]  # fmt: skip


def _time_facts(run: pd.Series | None, runs: pd.DataFrame | None) -> list[Evidence]:
    if run is None or not run["gradient_sync_us"] > 0:
        return []
    where = str(run["run"])
    step, sync, most = float(run["step_us"]), float(run["gradient_sync_us"]), float(run["gradient_sync_max_us"])
    facts = [
        Evidence(fact="time of a step, median", value=step / 1e3, unit="ms", table="training_steps", where=where),
        Evidence(fact="gradient synchronisation, fastest rank", value=sync / 1e3, unit="ms", table="series",
                 where=where),
        Evidence(fact="gradient synchronisation, slowest rank", value=most / 1e3, unit="ms", table="series",
                 where=where),
        Evidence(fact="share of the step in gradient synchronisation", value=sync / step, unit="share"),
    ]  # fmt: skip
    other = _usual_compute(run, runs)
    if run["compute_us"] > 0 and other is not None:
        change = float(run["compute_us"]) / other - 1
        words = "unchanged" if abs(change) <= SAME_COMPUTE_SHARE else f"{change:+.0%}"
        fact = f"forward and backward pass ({words} against the smaller job's {other / 1e3:,.0f} ms)"
        facts.append(Evidence(fact=fact, value=float(run["compute_us"]) / 1e3, unit="ms", table="series", where=where))
    return facts


def _usual_compute(run: pd.Series, runs: pd.DataFrame | None) -> float | None:
    """Forward and backward pass of the fastest other job with the same work per rank, its whole step where not told."""
    others = pd.DataFrame() if runs is None else runs[runs["run"] != run["run"]]
    if others.empty:
        return None
    return float(others["compute_us"].fillna(others["step_us"]).min())


def _ruled_out(run: pd.Series | None) -> tuple[RuledOut, ...]:
    if run is None or not run["gradient_sync_us"] > 0:
        return ()
    out = []
    spread = float(run["gradient_sync_max_us"] / run["gradient_sync_us"] - 1)
    if spread <= EVEN_SHARE:
        because = f"the slowest rank synchronises {spread:.1%} longer than the fastest: all wait for the link alike"
        out.append(RuledOut(cause="slow_rank", because=because))
    told = float(run["gradient_sync_us"] + run["compute_us"]) / float(run["step_us"])
    if told > 1 - SYNC_SHARE_LEAST:
        because = f"computing and synchronising are {told:.0%} of the step; nothing is left to wait for data"
        out.append(RuledOut(cause="data_starved", because=because))
    return tuple(out)
