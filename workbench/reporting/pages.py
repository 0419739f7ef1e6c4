"""Self-contained HTML pages: one look, nothing loaded from anywhere, and only our own scripts run."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Sequence

STYLE = """
:root{--ink:#1c2430;--soft:#5b6675;--line:#dfe4ea;--paper:#fff;--ground:#f4f6f8;--accent:#1f5fae;
--good:#1a7f4b;--warn:#a15c00;--bad:#b3261e;--good-soft:#e3f4ea;--warn-soft:#fdf0da;--bad-soft:#fbe6e4;--calm-soft:#e7edf5}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);
font:15px/1.55 system-ui,"Segoe UI",Roboto,"Noto Sans","Noto Sans CJK SC","PingFang SC","Microsoft YaHei",sans-serif}
main{max-width:1160px;margin:0 auto;padding:28px 32px 56px}
a{color:var(--accent)}
h1{font-size:26px;line-height:1.25;margin:.2em 0 .5em;overflow-wrap:anywhere}
h2{font-size:19px;margin:1.9em 0 .6em;padding-top:.7em;border-top:1px solid var(--line)}
h3{font-size:16px;margin:1.4em 0 .4em}
p,ul,ol{max-width:82ch}
.crumb{font-size:13px;margin:0 0 1em;color:var(--soft)}
.soft{color:var(--soft)}
.wide{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;font-size:14px;background:var(--paper);margin:.6em 0;border:0;
font-variant-numeric:tabular-nums}
th,td{padding:6px 12px;border:0;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
thead th{color:var(--soft);font-weight:600;background:#fafbfc;border-bottom:2px solid var(--line)}
td.number,th.number{text-align:right;white-space:nowrap}
tbody tr:hover{background:#f8fafc}
pre{background:#fafbfc;border:1px solid var(--line);border-radius:6px;padding:10px 12px;overflow-x:auto;font-size:13px;
white-space:pre-wrap;overflow-wrap:anywhere}
code{font-size:.92em;background:#eef1f5;padding:.1em .3em;border-radius:4px}pre code{background:none;padding:0}
figure{margin:1em 0;background:var(--paper);border:1px solid var(--line);border-radius:8px;padding:14px 16px;
overflow-x:auto;max-width:100%}
figure img,figure .still>svg{max-width:100%;height:auto}
.badge{display:inline-block;padding:1px 9px;border-radius:10px;font-size:12.5px;font-weight:600;white-space:nowrap}
.badge.complete{background:var(--good-soft);color:var(--good)}
.badge.failed,.badge.corrupt{background:var(--bad-soft);color:var(--bad)}
.badge.writing{background:var(--warn-soft);color:var(--warn)}
.badge.pending{background:var(--calm-soft);color:var(--accent)}
.banner{border-left:5px solid var(--bad);background:var(--bad-soft);padding:10px 16px;border-radius:0 6px 6px 0}
.banner pre{background:none;border:0;padding:0;margin:.4em 0 0}
@media print{body{background:#fff}main{max-width:none;padding:0}}
"""


def page(title: str, body: str, *, scripts: Sequence[str] = (), style: str = "") -> str:
    """A whole page.

    Args:
        title: plain text; escaped here.
        body: HTML; the caller has escaped every name in it.
        scripts: our own JavaScript. Their hashes are the only ones the page's content policy lets run, so a script
            that got into `body` in spite of escaping stays text; and no address can be contacted.
        style: further CSS.
    """
    hashes = " ".join(f"'sha256-{_digest(s)}'" for s in scripts)
    # Vega compiles chart expressions to functions, hence unsafe-eval where there are scripts at all.
    allowed = f"{hashes} 'unsafe-eval'" if scripts else "'none'"
    policy = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
    tags = "".join(f"<script>{s}</script>\n" for s in scripts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        f"{tags}</body>\n</html>\n"
    )


def escape(value: object) -> str:
    """`value` as text in HTML, safe in attributes too."""
    return html.escape(str(value), quote=True)


def badge(status: str, label: str) -> str:
    """A coloured status word."""
    return f'<span class="badge {escape(status)}">{escape(label)}</span>'


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
