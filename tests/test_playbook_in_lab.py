"""Every playbook in JupyterLab: its default sample, all cells run, the right verdict, nothing asked of the internet."""

import shutil
from pathlib import Path

import pytest

from tests.lab import TOKEN, lab_server, run_all_cells, watched_page
from tests.test_playbooks import FOUND
from workbench.findings.playbooks import PLAYBOOKS

REPOSITORY = Path(__file__).parents[1]
RED = "rgb(179, 38, 30)"
COMPLAINTS = ("application/vnd.jupyter.stderr", "application/vnd.jupyter.error")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium"),
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """One server over copies of the notebooks, and one page; gives the page, its blocked requests, the addresses."""
    root = tmp_path_factory.mktemp("lab")
    shutil.copytree(REPOSITORY / "notebooks" / "troubleshoot", root / "notebooks" / "troubleshoot")
    (root / "data_samples").symlink_to(REPOSITORY / "data_samples")
    notebooks = {name: root / "notebooks/troubleshoot" / f"{p.notebook}.ipynb" for name, p in PLAYBOOKS.items()}
    with lab_server(notebooks["T1"], root) as address, watched_page(height=9000) as (page, blocked):
        yield page, blocked, {n: address.replace(PLAYBOOKS["T1"].notebook, p.stem) for n, p in notebooks.items()}


@pytest.fixture
def no_kernel_left(lab):
    """Each notebook's kernel holds half a GB: it ends with its test."""
    yield
    page, _blocked, addresses = lab
    server = addresses["T1"].partition("/lab/")[0]
    for kernel in page.request.get(f"{server}/api/kernels?token={TOKEN}").json():
        page.request.delete(f"{server}/api/kernels/{kernel['id']}?token={TOKEN}")


@pytest.mark.usefixtures("no_kernel_left")
@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_the_playbook_in_lab(playbook, lab):
    page, blocked, addresses = lab
    run_all_cells(page, addresses[playbook])
    notebook = page.locator(".jp-Notebook")
    drawings = page.locator(".vega-embed .marks")
    drawings.last.wait_for(state="visible", timeout=30_000)
    text, cause = notebook.inner_text(), FOUND[playbook]
    assert f"the cause {cause}" in text
    assert f"The cause is {cause}: " in text
    assert "Proven: " in text
    coloured = page.locator("b", has_text="the cause").evaluate_all("bs => bs.map(b => getComputedStyle(b).color)")
    assert RED in coloured
    assert drawings.count() >= 2
    for kind in COMPLAINTS:
        assert page.locator(f".jp-OutputArea [data-mime-type='{kind}']").count() == 0
    right = notebook.bounding_box()
    boxes = [drawing.bounding_box() for drawing in drawings.all()]
    assert [b for b in boxes if b and b["x"] + b["width"] > right["x"] + right["width"]] == []
    assert blocked == []
