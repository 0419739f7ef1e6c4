"""Recognition by content, or else by the usual name: a file with a damaged beginning is reported, not passed over."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

Sniff = Callable[[Path, bytes], bool]


def or_named(sniff: Sniff, name: str) -> Sniff:
    """`sniff`, or a file name that matches the regular expression `name` as a whole."""
    pattern = re.compile(name)

    def either(path: Path, head: bytes) -> bool:
        return sniff(path, head) or pattern.fullmatch(path.name) is not None

    return either
