"""Opens a file the way a run does: the first kind that recognises it reads it."""

from pathlib import Path

from workbench.readers import ALL_KINDS
from workbench.readers.kinds import HEAD_BYTES, FileContext, FileKind
from workbench.tables import Reading


def kind_of(path: Path) -> FileKind | None:
    """The kind that takes `path`."""
    with path.open("rb") as f:
        head = f.read(HEAD_BYTES)
    return next((kind for kind in ALL_KINDS if kind.sniff(path, head)), None)


def read(path: Path, expected_kind: str, **context: int) -> dict[str, Reading]:
    """What `path` gives, after checking that the right kind takes it."""
    kind = kind_of(path)
    assert kind is not None, f"no kind knows {path.name}"
    assert kind.name == expected_kind
    readings = kind.read(path, FileContext(root=path.parent, **context))
    assert set(readings) <= set(kind.tables)
    return readings


def read_text(folder: Path, name: str, text: str, expected_kind: str, **context: int) -> dict[str, Reading]:
    """What a file of this text gives."""
    path = folder / name
    path.write_bytes(text.encode())
    return read(path, expected_kind, **context)


def notes_text(reading: Reading) -> str:
    """All notes as one text."""
    return "\n".join(map(str, reading.notes))
