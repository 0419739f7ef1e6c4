"""A page in headless Chromium without network, for the tests of archived pages."""

import shutil
from pathlib import Path

import pytest

BROWSER_FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


class OfflinePage:
    """Open a page; gives it, the addresses that it asked for, and its console errors."""

    def __init__(self, path: Path, **options: object) -> None:
        self._path, self._options = path, options

    def __enter__(self):
        sync_api = pytest.importorskip("playwright.sync_api")
        chromium = shutil.which("chromium")
        if chromium is None:
            pytest.skip("needs chromium")
        self._playwright = sync_api.sync_playwright().start()
        self._browser = self._playwright.chromium.launch(executable_path=chromium, args=BROWSER_FLAGS)
        page = self._browser.new_context(
            viewport={"width": 1280, "height": 900}, offline=True, **self._options
        ).new_page()
        requests: list[str] = []
        problems: list[str] = []
        page.on("request", lambda r: requests.append(r.url))
        page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: problems.append(str(e)))
        page.goto(self._path.as_uri())
        return page, requests, problems

    def __exit__(self, *_error: object) -> None:
        self._browser.close()
        self._playwright.stop()
