"""`index.html` of the report folder: every run, every checkpoint, its status, its numbers and its top finding.

Made from the folders alone, so it can be made again at any time (`workbench report --index-only`).
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from workbench.files import write_atomic
from workbench.findings.shown import with_code
from workbench.reporting.archive import ReportRecord, RunReports, RunState, Score, Waiting, all_runs
from workbench.reporting.pages import badge, escape, page

METRIC = "perplexity"  # of the columns per subset; the loss is its logarithm and stands in the cell's title
MAX_SUBSETS = 8  # columns; more would not fit on a screen, all are in the reports
CHART_WIDTH, CHART_HEIGHT = 150, 36
LABELS = {
    "complete": "complete",
    "failed": "failed",
    "corrupt": "corrupt",
    "cut_short": "half-written",
    "does_not_fit": "does not fit",
    "writing": "being written",
    "pending": "waiting",
}
INDEX_STYLE = """
main{max-width:1280px;padding:24px}th,td{padding:6px 9px}
section{background:var(--paper);border:1px solid var(--line);border-radius:10px;padding:6px 22px 16px;margin:22px 0}
section h2{border:0;margin:.7em 0 .1em;padding:0;overflow-wrap:anywhere}
section .where{font-size:13px;color:var(--soft);overflow-wrap:anywhere;margin:0 0 .6em}
td.finding{min-width:240px;max-width:430px;overflow-wrap:anywhere}td .note{font-size:13px;color:var(--soft)}
td.name{overflow-wrap:anywhere;min-width:150px}.range{display:block;font-size:12px;font-weight:400;color:var(--soft)}
td.when{white-space:nowrap;font-size:13px}
th.subset{white-space:normal;max-width:150px;overflow-wrap:break-word}
.trends{display:flex;flex-wrap:wrap;gap:14px 26px;margin:.4em 0 .8em}
.trends div{font-size:13px;color:var(--soft)}.trends svg{display:block}
.dot{display:inline-block;width:9px;height:9px;border-radius:50%;margin-right:7px}
.dot.critical{background:var(--bad)}.dot.warning{background:#d98a00}.dot.info{background:var(--accent)}
"""


def refresh_index(root: Path) -> Path:
    """Write `index.html` so that it shows the folders as they are; readers see the old or the new page, never half.

    What appears while it is written is looked for afterwards, so that of two processes that refresh at once, none
    leaves the older state behind.
    """
    out = root / "index.html"
    seen = None
    while seen != (now := folder_state(root)):
        seen = now
        write_atomic(out, index_html(root))
    return out


def folder_state(root: Path) -> tuple[tuple[str, int], ...]:
    """Changes when a report or a run's state does."""
    files = (f for pattern in ("*/state.json", "*/*/report.json") for f in root.glob(pattern))
    return tuple(sorted((str(f), _mtime_ns(f)) for f in files))


def index_html(root: Path) -> str:
    """The page over all runs; the run with the latest report or look first."""
    runs = sorted(all_runs(root), key=_latest_ns, reverse=True)
    sections = [s for s in map(_run_section, runs) if s]
    empty = "<p>No report yet. <code>workbench watch RUN</code> makes one for each checkpoint of a run.</p>"
    body = "<h1>Checkpoint reports</h1>\n" + ("\n".join(sections) or empty)
    return page("Checkpoint reports", body, style=INDEX_STYLE)


def _run_section(reports: RunReports) -> str:
    records, state = reports.records(), reports.state()
    if not records and state is None:
        return ""
    waiting = [w for w in (state.waiting if state else []) if w.name not in {r.name for r in records}]
    name = state.run_id if state else reports.run_id
    subsets = _subsets(records)
    rows = [_waiting_row(w, len(subsets)) for w in reversed(waiting)]
    rows += [_record_row(reports, r, subsets) for r in reversed(records)]
    head = "".join(f'<th class="number subset">{escape(s)}<span class="range">{METRIC}</span></th>' for s in subsets)
    table = (
        '<div class="wide"><table><thead><tr><th class="number">step</th><th>checkpoint</th><th>status</th>'
        f"{head}<th>top finding</th><th>reported (UTC)</th></tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
    return (
        f"<section><h2>{escape(name)}</h2>{_where(state, records, waiting)}{_trends(records, subsets)}"
        f"{table if rows else '<p>No checkpoint yet.</p>'}</section>"
    )


def _where(state: RunState | None, records: Sequence[ReportRecord], waiting: Sequence[Waiting]) -> str:
    counts = {
        "reported": sum(r.status == "complete" for r in records),
        "failed": sum(r.status == "failed" for r in records),
        "damaged": sum(r.status == "corrupt" for r in records),
        "waiting": len(waiting),
    }
    parts = [f"{n} {what}" for what, n in counts.items() if n]
    if state is not None:
        parts.append("training has ended" if state.ended else "training goes on")
        parts.append(escape(state.run_path))
    return f'<p class="where">{" · ".join(parts)}</p>'


def _record_row(reports: RunReports, record: ReportRecord, subsets: Sequence[str]) -> str:
    values = {s.subset: s for s in record.scores if s.metric == METRIC}
    losses = {s.subset: s for s in record.scores if s.metric == "loss"}
    cells = "".join(_score_cell(values.get(s), losses.get(s)) for s in subsets)
    finished = datetime.datetime.fromtimestamp(record.finished_ns / 1e9, datetime.timezone.utc)
    label = LABELS.get(record.damage or "", LABELS[record.status])
    return (
        f'<tr><td class="number">{_number(record.step)}</td><td class="name">{_link(reports, record)}</td>'
        f"<td>{badge(record.status, label)}</td>{cells}<td class='finding'>{_finding(record)}</td>"
        f'<td class="soft when" title="{finished:%Y-%m-%d %H:%M:%S} UTC">{finished:%b %d, %H:%M}</td></tr>'
    )


def _waiting_row(waiting: Waiting, columns: int) -> str:
    return (
        f'<tr><td class="number">{_number(waiting.step)}</td><td class="name">{escape(waiting.name)}</td>'
        f"<td>{badge(waiting.status, LABELS[waiting.status])}</td>{'<td></td>' * columns}"
        f'<td class="finding"><span class="note">{escape(waiting.why)}</span></td><td></td></tr>'
    )


def _link(reports: RunReports, record: ReportRecord) -> str:
    folder = reports.report(record.name)
    target = next((f for f in ("report.html", "report.ipynb", "evaluation.log") if (folder / f).is_file()), None)
    if target is None:
        return escape(record.name)
    address = "/".join(quote(part) for part in (folder.parent.name, record.name, target))
    return f'<a href="{escape(address)}">{escape(record.name)}</a>'


def _finding(record: ReportRecord) -> str:
    if record.status != "complete":
        fix = f'<div class="note">{with_code(record.fix)}</div>' if record.fix else ""
        return f"{escape(record.why or '')}{fix}"
    if not record.findings:
        return '<span class="note">nothing found</span>'
    top, more = record.findings[0], len(record.findings) - 1
    rest = f'<div class="note">and {more} more</div>' if more else ""
    return f'<span class="dot {escape(top.severity)}"></span>{escape(top.title)}{rest}'


def _score_cell(score: Score | None, loss: Score | None) -> str:
    if score is None:
        return '<td class="number soft">–</td>'
    title = f"loss {loss.value:.4f} nats per token" if loss else ""
    ends = (score.low, score.high)
    interval = f'<span class="range">{ends[0]:.3g} – {ends[1]:.3g}</span>' if None not in ends else ""
    return f'<td class="number" title="{title}">{score.value:.3f}{interval}</td>'


def _subsets(records: Sequence[ReportRecord]) -> list[str]:
    names = dict.fromkeys(s.subset for r in records for s in r.scores if s.metric == METRIC)
    return list(names)[:MAX_SUBSETS]


def _trends(records: Sequence[ReportRecord], subsets: Sequence[str]) -> str:
    """A small line per subset over the checkpoints."""
    pictures = []
    for subset in subsets:
        values = [s.value for r in records for s in r.scores if s.subset == subset and s.metric == METRIC]
        if len(values) > 1:
            line = _sparkline(values)
            pictures.append(f"<div>{escape(subset)}: {values[0]:.3g} → {values[-1]:.3g}{line}</div>")
    legend = f'<p class="where">{METRIC} per subset, first → last checkpoint</p>' if pictures else ""
    return f'{legend}<div class="trends">{"".join(pictures)}</div>' if pictures else ""


def _sparkline(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    xs = [4 + i * (CHART_WIDTH - 8) / (len(values) - 1) for i in range(len(values))]
    ys = [4 + (high - v) / span * (CHART_HEIGHT - 8) for v in values]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
    return (
        f'<svg width="{CHART_WIDTH}" height="{CHART_HEIGHT}" role="img">'
        f'<polyline points="{points}" fill="none" stroke="#1f5fae" stroke-width="1.8" stroke-linejoin="round"/>'
        f'<circle cx="{xs[-1]:.1f}" cy="{ys[-1]:.1f}" r="3" fill="#1f5fae"/></svg>'
    )


def _number(step: int | None) -> str:
    return "–" if step is None else f"{step:,}"


def _latest_ns(reports: RunReports) -> int:
    files = [reports.folder / "state.json", *reports.folder.glob("*/report.json")]
    return max(map(_mtime_ns, files), default=0)


def _mtime_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
