"""The archived page: everything visible, nothing loaded, nothing run that is not ours, in any name's company."""

import base64
import hashlib
import html
import json
import re
from pathlib import Path

import altair as alt
import nbformat
import pytest
from offline_page import OfflinePage

from workbench.charts.theme import static_bundle
from workbench.errors import UnreadableFileError
from workbench.reporting.export import MAX_PAGE_BYTES, export_html

NASTY = '</script><script>alert("x")</script><img src=x onerror=alert(1)> 试验'


def _chart(title: str = "Loss", n: int = 50) -> dict:
    rows = [{"step": i, "loss": 1 / (i + 1), "subset": NASTY if i % 2 else "code"} for i in range(n)]
    chart = alt.Chart(alt.Data(values=rows), title=title).mark_line(clip=True)
    return chart.encode(x="step:Q", y="loss:Q", color="subset:N").to_dict()


def _output(data: dict) -> nbformat.NotebookNode:
    return nbformat.v4.new_output("display_data", data=data)


def _notebook(path: Path, *outputs: nbformat.NotebookNode, markdown: str = "# The report") -> Path:
    cells = [nbformat.v4.new_markdown_cell(markdown)]
    cells += [nbformat.v4.new_code_cell("secret_source = 1", outputs=[o]) for o in outputs]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


def _export(tmp_path: Path, *outputs: nbformat.NotebookNode, **options: str) -> str:
    out = tmp_path / "page.html"
    export_html(_notebook(tmp_path / "n.ipynb", *outputs, **options), out, index_href="../../index.html")
    return out.read_text()


def test_code_is_hidden_and_outputs_are_shown(tmp_path):
    table = "<table><tr><td>42</td></tr></table>"
    stream = nbformat.v4.new_output("stream", name="stdout", text="\x1b[31mprinted\x1b[0m <b>")
    noise = nbformat.v4.new_output("stream", name="stderr", text="warning of a library")
    picture = _output({"image/png": base64.b64encode(b"png").decode() + "\n"})
    text = _export(tmp_path, _output({"text/html": table, "text/plain": "42"}), stream, noise, picture)
    assert "secret_source" not in text
    assert table in text
    assert "<pre>printed &lt;b&gt;</pre>" in text
    assert "warning of a library" not in text
    assert 'src="data:image/png;base64,cG5n"' in text  # base64 of "png"
    assert "<title>The report</title>" in text
    assert 'href="../../index.html"' in text


def test_a_chart_is_a_picture_and_its_specification(tmp_path):
    text = _export(tmp_path, _output(static_bundle(_chart())), _output(static_bundle(_chart("Again"))))
    specs = re.findall(r'<script type="application/json">(.*?)</script>', text)
    assert [json.loads(s)["title"] for s in specs] == ["Loss", "Again"]
    assert json.loads(specs[0])["data"]["values"][1]["subset"] == NASTY
    assert text.count('<div class="still"><svg') == 2
    assert text.count("window.vegaEmbed=") == 1


def test_a_specification_without_picture_gets_one(tmp_path):
    assert '<div class="still"><svg' in _export(tmp_path, _output({"application/vnd.vegalite.v6+json": _chart()}))


def test_pictures_in_one_page_do_not_share_ids(tmp_path):
    text = _export(tmp_path, *[_output(static_bundle(_chart())) for _ in range(2)])
    body = text.split("</main>")[0]
    ids = re.findall(r'\bid="([^"]+)"', body)
    assert ids
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#([^)]+)\)", body)) <= set(ids)


def test_a_page_without_charts_has_no_script(tmp_path):
    text = _export(tmp_path, _output({"text/plain": "x"}))
    assert "<script" not in text
    assert len(text) < 20_000


def test_names_in_text_stay_text(tmp_path):
    text = _export(tmp_path, _output({"text/plain": NASTY}), _output({"text/markdown": f"**{NASTY}**"}))
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert text.count(html.escape(NASTY)) == 2


def test_only_our_scripts_may_run_and_no_address_may_be_contacted(tmp_path):
    text = _export(tmp_path, _output(static_bundle(_chart())))
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1]
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert len(hashes) == 2
    assert set(re.findall(r"'sha256-([^']+)'", policy)) == set(hashes)
    assert policy.startswith("default-src 'none';")
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    assert not re.search(r'(src|href)="(https?:)?//', text)


def test_a_page_that_would_be_too_large_keeps_its_largest_charts_as_pictures(tmp_path):
    small, large = _chart("Small"), _chart("Large", n=40)
    large["usermeta"] = {"filling": "x" * MAX_PAGE_BYTES}
    text = _export(tmp_path, *[_output({**static_bundle(_chart(t)), "application/vnd.vegalite.v6+json": s})
                               for t, s in (("Large", large), ("Small", small))])  # fmt: skip
    assert len(text.encode()) <= MAX_PAGE_BYTES
    specs = re.findall(r'<script type="application/json">(.*?)</script>', text)
    assert [json.loads(s)["title"] for s in specs] == ["Small"]
    assert text.count('<div class="still"><svg') == 2


def test_a_notebook_that_raised_says_so_at_the_top(tmp_path):
    error = nbformat.v4.new_output("error", ename="KeyError", evalue="<loss>", traceback=["\x1b[31mline 1\x1b[0m <x>"])
    text = _export(tmp_path, error)
    assert text.index("its notebook raised KeyError.") < text.index("<h1")
    assert "&lt;loss&gt;" in text
    assert "line 1 &lt;x&gt;" in text


def test_what_is_not_a_notebook_is_an_error(tmp_path):
    (tmp_path / "n.ipynb").write_text("{")
    with pytest.raises(UnreadableFileError, match="not a notebook"):
        export_html(tmp_path / "n.ipynb", tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


@pytest.mark.browser
def test_the_page_works_in_a_browser_without_network(tmp_path):
    outputs = [_output(static_bundle(_chart(t))) for t in ("One", "Two", NASTY)]
    injected = _output({"text/html": "<p>bad</p><script>document.title = 'injected'</script>"})
    _export(tmp_path, *outputs, injected)
    with OfflinePage(tmp_path / "page.html") as (page, requests, problems):
        page.wait_for_function("document.querySelectorAll('figure.chart .live svg.marks').length == 3")
        for figure in page.locator("figure.chart").all():
            assert figure.locator(".still").is_hidden()
            box = figure.locator(".live svg.marks").bounding_box()
            assert box["width"] > 300
            assert box["height"] > 100
        assert page.title() == "The report"
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    assert requests == [(tmp_path / "page.html").as_uri()]
    assert all("Content Security Policy" in p for p in problems)  # the injected script was refused, nothing else
    assert len(problems) == 1


@pytest.mark.browser
def test_charts_stay_visible_where_scripts_are_off(tmp_path):
    _export(tmp_path, _output(static_bundle(_chart())))
    with OfflinePage(tmp_path / "page.html", java_script_enabled=False) as (page, _requests, problems):
        assert page.locator("figure.chart .still svg").is_visible()
        assert page.locator("figure.chart .still svg").bounding_box()["height"] > 100
    assert problems == []
