"""A playbook in JupyterLab: runs, shows its charts and coloured verdicts, asks nothing of the internet."""

import shutil
from pathlib import Path

import pytest

from tests.lab import lab_server, run_all_cells, watched_page
from workbench.commands.opening import fill_notebooks

REPOSITORY = Path(__file__).parents[1]
RUN = REPOSITORY / "data_samples" / "lab_runs" / "recompile"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium"),
]


def test_the_playbook_on_recompilation(tmp_path):
    fill_notebooks(REPOSITORY / "notebooks" / "troubleshoot", tmp_path, RUN)
    notebook = tmp_path / "recompiles_on_new_shapes.ipynb"
    with lab_server(notebook, tmp_path) as address, watched_page(height=4000) as (page, blocked):
        run_all_cells(page, address)
        page.locator(".vega-embed svg, .vega-embed canvas").first.wait_for(state="visible", timeout=30_000)
        text = page.locator(".jp-Notebook").inner_text()
        assert "the cause recompile" in text
        assert "The cause is recompile: " in text
        assert "Proven: recompile in recompile, gone in healthy." in text
        assert (
            page.locator("b", has_text="the cause").first.evaluate("e => getComputedStyle(e).color")
            == "rgb(179, 38, 30)"
        )
        assert page.locator(".vega-embed").count() >= 4
        assert page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
        right = page.locator(".jp-Notebook").bounding_box()
        boxes = [b.bounding_box() for b in page.locator(".vega-embed").all()]
        assert all(b["x"] + b["width"] <= right["x"] + right["width"] for b in boxes if b)
        assert blocked == []
