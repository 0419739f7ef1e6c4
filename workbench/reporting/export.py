"""An executed notebook -> one HTML file that opens anywhere, years later, without a network.

Code is left out. Each chart is an inline SVG, which every viewer shows, and its Vega-Lite specification, which the one
embedded copy of the Vega libraries turns into the interactive chart.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import vl_convert
from nbconvert.filters import strip_ansi
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

from workbench.errors import UnreadableFileError
from workbench.files import write_atomic
from workbench.reporting.pages import escape, page

MAX_PAGE_BYTES = 3_000_000
VEGA_LITE = re.compile(r"application/vnd\.vegalite\.v(\d+)\+json$")
ADOPT_CHARTS = """
document.querySelectorAll("figure.chart").forEach(async (figure) => {
  const spec = figure.querySelector("script");
  if (!spec) return;
  const live = figure.querySelector(".live");
  const actions = {export: true, source: false, compiled: false, editor: false};
  try {
    await vegaEmbed(live, JSON.parse(spec.textContent), {renderer: "svg", actions});
    figure.querySelector(".still").hidden = true;
  } catch (error) {
    live.remove();  // the still picture stays
    figure.title = String(error);
  }
});
"""
CHART_STYLE = """
figure.chart{position:relative;padding-right:44px}.live{width:100%}.live:empty{height:0}
figure.chart .vega-embed{padding-right:0}figure.chart .vega-embed summary{opacity:.35}
.still[hidden]{display:none}
"""


def export_html(executed: Path, out: Path, *, title: str | None = None, index_href: str | None = None) -> None:
    """Write the page of an executed notebook, at most `MAX_PAGE_BYTES` where the charts allow it.

    Cells shown: Markdown, and outputs as tables, charts, pictures and text. A cell that raised is shown as a banner at
    the top with its message. Where the page would be too large, the largest charts stay still pictures.

    Args:
        executed: the notebook, as papermill wrote it.
        out: the page; it appears only when complete.
        title: of the browser window; by default the first heading.
        index_href: address of the overview page, relative to `out`.

    Raises:
        UnreadableFileError: `executed` is not a notebook.
    """
    try:
        notebook = nbformat.read(executed, as_version=4)
    except (OSError, ValueError, nbformat.ValidationError) as error:
        raise UnreadableFileError(
            f"{executed} is not a notebook: {error}", fix="render the report again with --retry"
        ) from None
    parts = list(_parts(notebook))
    title = title or next((h for h in map(_heading, notebook.cells) if h), executed.stem)
    crumb = f'<p class="crumb"><a href="{escape(index_href)}">← All reports</a></p>' if index_href else ""
    banner = "".join(_failures(notebook))
    while True:
        body = crumb + banner + "\n".join(p.html() if isinstance(p, _Chart) else p for p in parts)
        charts = [p for p in parts if isinstance(p, _Chart) and p.interactive]
        scripts = [_vega_bundle(), ADOPT_CHARTS] if charts else []
        text = page(title, body, scripts=scripts, style=CHART_STYLE)
        if len(text.encode()) <= MAX_PAGE_BYTES or not charts:
            break
        max(charts, key=lambda c: len(c.spec)).interactive = False
    write_atomic(out, text)


@dataclass
class _Chart:
    spec: str
    svg: str
    number: int
    interactive: bool = field(default=True)

    def html(self) -> str:
        still = f'<div class="still">{_with_own_ids(self.svg, f"c{self.number}-")}</div>'
        if not self.interactive:
            return f'<figure class="chart">{still}</figure>'
        data = f'<script type="application/json">{self.spec}</script>'
        return f'<figure class="chart"><div class="live"></div>{still}{data}</figure>'


@functools.cache
def _vega_bundle() -> str:
    """Vega, Vega-Lite and vega-embed; a script element ends at its first `</script`, also inside a string."""
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _parts(notebook: Any) -> Iterator[str | _Chart]:
    numbers = itertools.count()
    for cell in notebook.cells:
        if "papermill-error-cell-tag" in cell.metadata.get("tags", ()):
            continue
        if cell.cell_type == "markdown":
            yield _markdown(cell.source, trusted=True)
        for output in cell.get("outputs", ()):
            yield from _output(output, numbers)


def _output(output: Any, numbers: Iterator[int]) -> Iterator[str | _Chart]:
    if output.output_type == "stream" and output.name == "stdout":
        yield f"<pre>{escape(strip_ansi(_text(output.text)))}</pre>"
    elif output.output_type in ("display_data", "execute_result"):
        yield _display(output.data, next(numbers))


def _display(data: Mapping[str, Any], number: int) -> str | _Chart:
    """The richest form that needs no running kernel."""
    for kind in data:
        if match := VEGA_LITE.search(kind):
            return _chart(data[kind], data.get("image/svg+xml"), match[1], number)
    if "text/html" in data:
        return f'<div class="wide">{_text(data["text/html"])}</div>'
    if "image/svg+xml" in data:
        return f"<figure>{_with_own_ids(_text(data['image/svg+xml']), f'c{number}-')}</figure>"
    for kind in ("image/png", "image/jpeg"):
        if kind in data:
            encoded = "".join(_text(data[kind]).split())
            return f'<figure><img alt="" src="data:{kind};base64,{escape(encoded)}"></figure>'
    if "text/markdown" in data:
        return _markdown(_text(data["text/markdown"]), trusted=False)
    return f"<pre>{escape(strip_ansi(_text(data['text/plain'])))}</pre>" if data.get("text/plain") else ""


def _chart(spec: dict[str, Any], svg: Any, major: str, number: int) -> _Chart:
    picture = _text(svg) if svg else vl_convert.vegalite_to_svg(spec, vl_version=_latest_version(major))
    # Inside a script element, only this escape keeps a "</script" in a name from ending it.
    return _Chart(spec=json.dumps(spec, separators=(",", ":")).replace("<", "\\u003c"), svg=picture, number=number)


def _latest_version(major: str) -> str:
    versions: list[str] = vl_convert.get_vegalite_versions()
    return [v for v in versions if v.split(".")[0] == major][-1]


def _with_own_ids(svg: str, prefix: str) -> str:
    """Keep clip paths and gradients of several pictures in one page apart; drop what precedes the picture."""
    svg = svg[max(svg.find("<svg"), 0) :]
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}\1)", svg)
    return re.sub(r'href="#([^"]+)"', rf'href="#{prefix}\1"', svg)


def _markdown(source: str, *, trusted: bool) -> str:
    """HTML of Markdown. What a program printed may hold names with tags in them: there, HTML is shown as text."""
    rendered: str = MarkdownWithMath(renderer=IPythonRenderer(escape=not trusted)).render(source)
    return re.sub(r'<a class="anchor-link"[^>]*>.*?</a>', "", rendered)


def _failures(notebook: Any) -> Iterator[str]:
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.output_type == "error":
                trace = escape(strip_ansi("\n".join(output.traceback)))
                yield (
                    '<div class="banner"><strong>This report is incomplete: its notebook raised '
                    f"{escape(output.ename)}.</strong> {escape(output.evalue)}"
                    f"<details><summary>Where</summary><pre>{trace}</pre></details></div>"
                )


def _heading(cell: Any) -> str | None:
    match = re.search(r"^#\s+(.+)$", cell.source, re.MULTILINE) if cell.cell_type == "markdown" else None
    return match[1].strip() if match else None


def _text(value: Any) -> str:
    return "".join(value) if isinstance(value, list) else str(value)
