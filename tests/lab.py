"""JupyterLab for tests: a server at a notebook, and a headless browser whose requests are all watched."""

import contextlib
import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from workbench.commands.opening import lab_command

TOKEN = "lab-test"
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
LOCAL = ("http://127.0.0.1", "ws://127.0.0.1", "data:", "blob:", "about:")


@contextlib.contextmanager
def lab_server(notebook: Path, folder: Path):
    """A server with `folder` as its root; gives the address of Lab at `notebook`."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command, environment = lab_command(notebook, folder, browser=False, port=port)
    log = (folder / "lab.log").open("w")
    server = subprocess.Popen(
        [*command, "--ip=127.0.0.1", f"--IdentityProvider.token={TOKEN}"], env=environment, stdout=log, stderr=log
    )
    try:
        _wait_for(f"http://127.0.0.1:{port}/api?token={TOKEN}", server, folder / "lab.log")
        yield f"http://127.0.0.1:{port}/lab/tree/{notebook.relative_to(folder)}?token={TOKEN}&reset"
    finally:
        server.terminate()
        server.wait(30)
        log.close()


@contextlib.contextmanager
def watched_page(*, width: int = 1280, height: int = 1000):
    """A page that reaches this machine only, and the list of the requests that wanted to go further."""
    blocked: list[str] = []

    def gate(route):
        if route.request.url.startswith(LOCAL):
            route.continue_()
        else:
            blocked.append(route.request.url)
            route.abort()

    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        page = browser.new_context(viewport={"width": width, "height": height}).new_page()
        page.route("**/*", gate)
        try:
            yield page, blocked
        finally:
            browser.close()


def run_all_cells(page: Page, address: str, *, timeout_s: float = 240) -> None:
    """Open the notebook, run all its cells, wait until the kernel has nothing left to do."""
    page.goto(address)
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=90_000)
    page.wait_for_selector("text=| Idle", timeout=90_000)
    page.wait_for_timeout(500)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    waiting = "() => [...document.querySelectorAll('.jp-InputPrompt')].some(p => p.textContent.includes('*'))"
    page.wait_for_timeout(1500)
    page.wait_for_function(f"!({waiting})()", timeout=timeout_s * 1000)
    page.wait_for_selector('.jp-Notebook-ExecutionIndicator[data-status="idle"]', timeout=timeout_s * 1000)


def _wait_for(address: str, server: subprocess.Popen, log: Path) -> None:
    end = time.monotonic() + 90
    while time.monotonic() < end:
        assert server.poll() is None, log.read_text()
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=2) as answer:
            if answer.status == 200:
                return
        time.sleep(0.3)
    raise AssertionError(f"the server did not answer: {log.read_text()}")
