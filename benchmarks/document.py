"""Put what a benchmark printed between its markers in a document."""

from __future__ import annotations

from pathlib import Path


def write_section(page: Path, name: str, text: str) -> None:
    """Replace what stands between `<!-- name -->` and `<!-- end of name -->` in `page`.

    Raises:
        SystemExit: the document has no such section.
    """
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, opened, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not opened or not closed:
        raise SystemExit(f"{page} has no section {begin} ... {end}.")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
