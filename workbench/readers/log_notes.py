"""Notes on a log: the same problem on many lines becomes one note with its first line and its count."""

from __future__ import annotations

from workbench.tables import Note


class NoteBook:
    """Collects problems of one file by their text."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._found: dict[str, list[object]] = {}

    def add(self, problem: str, line: int, lost: str, fix: str, count: int = 1) -> None:
        """Record a problem seen at `line` (0: no single line)."""
        entry = self._found.setdefault(problem, [line, lost, fix, 0])
        entry[3] = int(str(entry[3])) + count

    def notes(self) -> list[Note]:
        """One note per problem."""
        return [
            Note(
                file=self.file,
                where=f"line {line}" if line else "whole file",
                problem=f"{problem}{f' ({count} times)' if count != 1 else ''}.",
                lost=f"{lost}.",
                fix=f"{fix}.",
            )
            for problem, (line, lost, fix, count) in self._found.items()
        ]
