"""YAML configuration beside logs -> table settings: dotted names, values as text, lists as one value."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

import pandas as pd
import yaml

from workbench.errors import UnreadableFileError
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.log_values import dotted
from workbench.readers.text import decode_to_utf8, normalise_bytes, read_bytes
from workbench.tables import SETTINGS, Note, Reading

MAX_SETTINGS = 20_000
MAX_BYTES = 8 << 20
MAX_ALIASES = 500  # nested aliases can make a small file expand without end
FIX_YAML = "correct the line, or give the configuration that the run was started with"
_KEY = re.compile(rb"^[A-Za-z_][\w.-]*:", re.MULTILINE)
_OUTER_KEY = re.compile(r"^[A-Za-z_'\"]", re.MULTILINE)


class _Loader(yaml.SafeLoader):
    """SafeLoader that reads unknown tags as plain values, and refuses documents that consist of aliases."""

    aliases = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            self.aliases += 1
            if self.aliases > MAX_ALIASES:
                raise yaml.YAMLError("too many aliases")
        return super().compose_node(parent, index)


def _plain(loader: _Loader, _suffix: str, node: yaml.Node) -> object:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return node.value


_Loader.add_multi_constructor("", _plain)


def sniff_yaml(path: Path, head: bytes) -> bool:
    """A file that calls itself YAML and has a key at the beginning of a line."""
    return path.suffix.lower() in (".yaml", ".yml") and _KEY.search(head) is not None


def read_yaml(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read a YAML file into table `settings`. Of a damaged file, the sections before the damage are read.

    Raises:
        UnreadableFileError: it cannot be opened, is too large, or has no setting before the damage.
    """
    file = context.name(path)
    data = read_bytes(path, context)
    if len(data) > MAX_BYTES:
        raise UnreadableFileError(f"{file} has {len(data)} bytes, too many for a configuration.", fix="leave it out")
    clean, notes = normalise_bytes(data, file)
    text, more = decode_to_utf8(clean, file)
    values, damage = _load(text.decode(), file)
    found = list(islice((item for part in values for item in dotted(part)), MAX_SETTINGS))
    notes = [*notes, *more, *damage]
    if not found:
        why = notes[-1].problem if notes else "it holds no mapping."
        raise UnreadableFileError(f"{file} has no setting that can be read: {why}", fix=FIX_YAML)
    rows = pd.DataFrame(found, columns=["name", "value"]).assign(source=file)
    return {"settings": Reading(SETTINGS.check(rows), notes)}


def _load(text: str, file: str) -> tuple[list[dict[object, object]], list[Note]]:
    """Mappings of all documents, and a note on what stopped the reading."""
    try:
        return _documents(text), []
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line if mark else 0
        note = Note(
            file=file,
            where=f"line {line + 1}" if mark else "whole file",
            problem=f"it is not YAML: {getattr(error, 'problem', None) or error}.",
            lost="the section with this line and all later ones",
            fix=FIX_YAML,
        )
    before = "".join(text.splitlines(keepends=True)[:line])
    sections = [m.start() for m in _OUTER_KEY.finditer(before)]
    for end in (len(before), *reversed(sections[-3:])):
        try:
            return _documents(before[:end]), [note]
        except (yaml.YAMLError, ValueError, RecursionError):
            continue
    return [], [note]


def _documents(text: str) -> list[dict[object, object]]:
    return [part for part in yaml.load_all(text, Loader=_Loader) if isinstance(part, dict)]


KINDS = (
    FileKind(
        name="yaml_settings",
        meaning="YAML configuration of a run",
        tables=("settings",),
        sniff=sniff_yaml,
        read=read_yaml,
    ),
)
