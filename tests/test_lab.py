"""JupyterLab driven by a real browser that reaches nothing but this machine."""

import shutil
import time
from pathlib import Path

import pytest

from tests.lab import lab_server, run_all_cells, watched_page
from workbench.commands.opening import fill_notebooks

REPOSITORY = Path(__file__).parents[1]
RUN = REPOSITORY / "data_samples" / "rehearsal_run"
EXPLORER = "explorer = wb.explore(run)"  # in the source of its cell
CLUSTER = REPOSITORY / "data_samples" / "simulated_cluster_8"
TRAINING_CHARTS = 3

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium"),
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The start notebook, run from top to bottom."""
    folder = tmp_path_factory.mktemp("lab")
    fill_notebooks(REPOSITORY / "notebooks", folder, RUN)
    with lab_server(folder / "start.ipynb", folder) as address, watched_page(height=2000) as (page, blocked):
        errors = []
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        run_all_cells(page, address)
        yield page, blocked, errors


def visible_charts(cell):
    cell.scroll_into_view_if_needed()
    cell.locator(".vega-embed svg, .vega-embed canvas").first.wait_for(state="visible", timeout=30_000)
    drawn = cell.locator(".vega-embed svg, .vega-embed canvas")
    return [box for box in (drawn.nth(i).bounding_box() for i in range(drawn.count())) if box and box["height"] > 50]


def test_the_start_notebook_runs_and_shows_its_charts(lab):
    page, blocked, errors = lab
    cells = page.locator(".jp-CodeCell")
    prompts = cells.locator(".jp-InputPrompt").all_inner_texts()
    assert [p for p in prompts if not p.strip("[]: \n").isdigit()] == []
    assert page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
    text = page.locator(".jp-Notebook").inner_text()
    assert "healthy as far as these tables show" in text
    with_charts = [c for c in range(cells.count()) if cells.nth(c).locator(".vega-embed").count()]
    assert len(with_charts) >= 5  # loss, step time, shares, subsets, explorer
    for c in with_charts:
        charts = visible_charts(cells.nth(c))
        assert charts
        right = cells.nth(c).bounding_box()
        assert max(b["x"] + b["width"] for b in charts) <= right["x"] + right["width"]  # nothing cut off
    assert blocked == []
    assert errors == []


def drag(page, chart, first, last):
    """Drag over a chart, from one place to another, in pixels from its left edge."""
    chart.scroll_into_view_if_needed()
    page.wait_for_timeout(1000)
    box = chart.bounding_box()
    page.mouse.move(box["x"] + first, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + last, box["y"] + 100, steps=10)
    page.mouse.up()


def test_dragging_in_the_explorer_moves_the_other_charts(lab):
    page, blocked, errors = lab
    explorer = page.locator(".jp-Cell", has_text=EXPLORER)
    explorer.get_by_role("tab", name="Training").click()
    drawn = explorer.locator(".widget-tab-contents .vega-embed svg.marks:visible")
    drawn.nth(TRAINING_CHARTS - 1).wait_for(state="visible", timeout=60_000)  # they move each other as they appear
    norm = drawn.nth(1)
    before = norm.inner_html()
    drag(page, drawn.first, 200, 350)
    readout = explorer.locator(".widget-readout")
    page.wait_for_function("e => !e.textContent.startsWith('1 ')", arg=readout.first.element_handle(), timeout=30_000)
    first, last = (int(part) for part in readout.first.inner_text().split("–"))
    assert 60 < first < last < 250
    page.wait_for_timeout(2000)
    assert drawn.nth(1).inner_html() != before  # the gradient norm follows the loss
    explorer.get_by_role("tab", name="Evaluation").click()
    explorer.get_by_text("next-token accuracy").first.wait_for(timeout=30_000)
    assert blocked == []
    assert errors == []


def cluster_explorer(page):
    """The cluster, opened in the kernel that is there, in the explorer that is on the page; its causes are there."""
    explorer = page.locator(".jp-Cell", has_text=EXPLORER)
    path = explorer.get_by_placeholder("path of another run")
    if path.input_value() != str(CLUSTER):
        path.fill(str(CLUSTER))
        path.press("Enter")
    explorer.get_by_role("tab", name="Overview").click()
    explorer.get_by_role("button", name="Show evidence").nth(1).wait_for(timeout=60_000)
    return explorer


def first_chart(explorer, tab):
    explorer.get_by_role("tab", name=tab).click()
    drawn = explorer.locator(".widget-tab-contents .vega-embed svg.marks:visible").first
    drawn.wait_for(timeout=60_000)
    return drawn


def changed(page, chart, before):
    """What the chart is drawn as, once that is no longer `before`."""
    end = time.monotonic() + 60
    while (now := chart.inner_html()) == before:
        assert time.monotonic() < end, "the chart stays as it was"
        page.wait_for_timeout(200)
    return now


def test_ranks_and_steps_of_a_cluster_change_the_charts_of_all_tabs(lab):
    page, blocked, errors = lab
    explorer = cluster_explorer(page)
    ranks = explorer.locator("select[multiple]")
    timeline = first_chart(explorer, "Timeline")
    everything = timeline.inner_html()
    assert everything.count(">step ") == 3
    ranks.select_option(["2", "5"])
    two_ranks = changed(page, timeline, everything)
    assert len(two_ranks) < len(everything)
    last = explorer.get_by_role("slider").nth(1)
    last.focus()
    last.press("ArrowLeft")
    explorer.locator(".widget-readout", has_text="5 – 6").wait_for(timeout=30_000)
    two_steps = changed(page, timeline, two_ranks)
    assert two_steps.count(">step ") == 2
    waits = first_chart(explorer, "Communication")
    assert waits.inner_html().count("rank: ") >= 2
    assert "rank: 0;" not in waits.inner_html()  # the other tab follows the same filters
    ranks.select_option([str(r) for r in range(8)])
    explorer.get_by_role("button", name="All steps").click()
    explorer.locator(".widget-readout", has_text="5 – 7").wait_for(timeout=30_000)
    assert blocked == []
    assert errors == []


def test_from_a_cause_of_a_cluster_to_its_evidence_and_its_playbook(lab):
    page, blocked, errors = lab
    explorer = cluster_explorer(page)
    explorer.get_by_role("button", name="Show evidence").nth(1).click()  # the slow rank
    explorer.locator(".lm-mod-current", has_text="Ranks").wait_for(timeout=30_000)
    one_rank = explorer.locator(".widget-dropdown", has_text="One rank").locator("select")
    assert one_rank.evaluate("e => e.selectedOptions[0].text") == "5"
    explorer.locator(".widget-tab-contents .vega-embed svg.marks:visible").first.wait_for(timeout=60_000)
    explorer.get_by_role("tab", name="Overview").click()
    explorer.get_by_role("button", name="Open playbook T4").first.click()
    link = explorer.locator("a[href*='playbooks']")
    link.first.wait_for(timeout=30_000)
    for tab in ("Timeline", "Operators", "Overview"):
        explorer.get_by_role("tab", name=tab).click()
    explorer.locator(".lm-mod-current", has_text="Overview").wait_for(timeout=30_000)
    link.first.click()
    page.locator(".lm-TabBar-tabLabel", has_text="poor_scaling").wait_for(timeout=60_000)
    page.get_by_text(f"run_path = '{CLUSTER}'").wait_for(timeout=30_000)
    page.locator(".lm-TabBar-tabLabel", has_text="start.ipynb").click()
    link.first.wait_for(state="visible", timeout=30_000)  # it is there for a second look
    assert blocked == []
    assert errors == []
