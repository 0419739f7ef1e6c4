"""One finding as text, and as a row of an HTML table."""

from __future__ import annotations

import html
from collections.abc import Iterable

from workbench.findings.finding import Evidence, Finding

COLOURS = {"critical": "#b3261e", "warning": "#9a5b00", "info": "#57606a"}
CELL = "text-align:left;vertical-align:top;white-space:normal;padding:4px 12px 4px 0;line-height:1.4"
FACTS_IN_TEXT = 8
COUNTED = frozenset({"steps", "ranks", "samples", "workers", "links", "layers", "lines", "batches", "times"})


def as_text(finding: Finding, number: int) -> str:
    """Several lines: severity, confidence and cause; what it is; the facts; what it is not; the gain; the fix."""
    lines = [f"{number}. [{finding.severity}] {finding.title}", f"   Fix: {finding.fix}"]
    lines.insert(1, f"   Cause: {_cause(finding)}, confidence {finding.confidence}, playbook {finding.playbook}")
    if finding.saves_us_per_step is not None:
        lines.append(f"   Gain: {finding.saves_us_per_step / 1e3:,.4g} ms per step")
    more = len(finding.evidence) - FACTS_IN_TEXT
    lines += [f"   - {fact_text(e)}" for e in finding.evidence[:FACTS_IN_TEXT]]
    lines += [f"   - and {more} more facts"] if more > 0 else []
    lines += [f"   Not {r.cause}: {r.because}" for r in finding.rules_out if r.cause != finding.cause]
    return "\n".join(lines)


def html_table(findings: Iterable[Finding], *, has_head: bool = True) -> str:
    """A table with a row per finding; its columns are as wide as those of any other such table on the page."""
    columns = "<col style='width:130px'><col><col style='width:100px'><col style='width:32%'>"
    heads = ("", "what", "costs per step", "what to do") if has_head else ()
    top = "".join(f"<th style='{CELL}'>{words}</th>" for words in heads)
    rows = "".join(as_html_row(f) for f in findings)
    return f"<table style='table-layout:fixed;width:100%'><colgroup>{columns}</colgroup><tr>{top}</tr>{rows}</table>"


def as_html_row(finding: Finding) -> str:
    """A row: severity and confidence; what, with facts and what is ruled out folded away; the gain; what to do."""
    facts = _items(fact_text(e) for e in finding.evidence)
    ruled = _items(f"not {r.cause}: {r.because}" for r in finding.rules_out if r.cause != finding.cause)
    saves = "" if finding.saves_us_per_step is None else f"{finding.saves_us_per_step / 1e3:,.1f} ms"
    word = (
        f"<b style='color:{COLOURS[finding.severity]}'>{finding.severity}</b><br>"
        f"<span style='color:#57606a'>{finding.confidence} confidence</span>"
    )
    what = (
        f"{html.escape(finding.title)}<br><code>{html.escape(_cause(finding))}</code>"
        f"<details><summary>evidence</summary><ul>{facts}{ruled}</ul></details>"
    )
    todo = f"{with_code(finding.fix)} <span style='color:#57606a'>({html.escape(finding.playbook)})</span>"
    cells = "".join(f"<td style='{CELL}'>{c}</td>" for c in (word, what, saves, todo))
    return f"<tr>{cells}</tr>"


def with_code(text: str) -> str:
    """Text as HTML, what stands between backquotes as code."""
    return "".join(f"<code>{html.escape(t)}</code>" if i % 2 else html.escape(t) for i, t in enumerate(text.split("`")))


def fact_text(evidence: Evidence) -> str:
    """`fact: number unit`, long times in ms or s; the fact alone where it has no value."""
    if evidence.value is None:
        return evidence.fact
    return f"{evidence.fact}: {_quantity(evidence.value, evidence.unit or '')}".rstrip()


def _cause(finding: Finding) -> str:
    return finding.cause if finding.sub_cause is None else f"{finding.cause} ({finding.sub_cause})"


def _items(texts: Iterable[str]) -> str:
    return "".join(f"<li>{html.escape(text)}</li>" for text in texts)


def _quantity(value: float | int | str, unit: str) -> str:
    first, _, rest = unit.partition(" ")
    if isinstance(value, str):
        return f"{value} {unit}"
    if first == "share":
        return f"{100 * value:.3g}%{unit.removeprefix('share')}"
    if unit == "step":
        return f"step {value:.0f}"
    if unit == "ratio":
        return f"{_number(value)} times"
    if first == "us" and abs(value) >= 1000:
        return f"{_scaled(value)} {rest}"
    if unit in COUNTED and value == 1:
        unit = unit.removesuffix("es") if unit == "batches" else unit.removesuffix("s")
    return f"{_number(value)} {unit}"


def _scaled(value_us: float) -> str:
    return f"{value_us / 1e6:,.4g} s" if abs(value_us) >= 1e6 else f"{value_us / 1e3:,.4g} ms"


def _number(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
