"""Writing that survives a kill, and the names of the files in a run directory (design: one run, append-only).

Appended JSON Lines are flushed per record; whole files appear under their name only when complete.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

RUN_SCHEMA = 1


def share_dir() -> Path:
    """Folder that holds `notebooks` and `data_samples`: inside an installed package, or the checkout."""
    packaged = Path(__file__).parent / "_share"
    return packaged if packaged.is_dir() else Path(__file__).parents[1]


def count_lines(path: Path) -> int:
    """Whole lines of a file; 0 where there is none."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


@dataclass(frozen=True)
class RunFiles:
    """Where everything of one run lies. Nothing is made on disk by naming it."""

    root: Path

    @property
    def run_json(self) -> Path:
        """Description of the run; its presence makes the directory ours."""
        return self.root / "run.json"

    @property
    def checkpoints(self) -> Path:
        """Default place of the checkpoints."""
        return self.root / "checkpoints"

    @property
    def profiles(self) -> Path:
        """Profiler output, as MindSpore wrote it."""
        return self.root / "profiles"

    def alerts(self, rank_id: int) -> Path:
        """Alerts that a rank raised while training, and what came of them."""
        return self.root / "alerts" / f"rank_{rank_id}.jsonl"

    @property
    def evals(self) -> Path:
        """Folder of evaluation records."""
        return self.root / "evals"

    @property
    def eval_samples(self) -> Path:
        """Folder of per-sample scores."""
        return self.root / "eval_samples"

    @property
    def data_samples(self) -> Path:
        """Folder of what was seen of the training data, sample by sample."""
        return self.root / "data_samples"

    @property
    def telemetry(self) -> Path:
        """Folder of host and device samples."""
        return self.root / "telemetry"

    @property
    def cache(self) -> Path:
        """Derived data; may be deleted at any time."""
        return self.root / ".workbench"

    def metrics(self, rank_id: int) -> Path:
        """Per-step records of one rank."""
        return self.root / "metrics" / f"rank_{rank_id}.jsonl"

    def events(self, rank_id: int) -> Path:
        """Intervals and marks of one rank."""
        return self.root / "events" / f"rank_{rank_id}.jsonl"

    def sample_ids(self, rank_id: int) -> Path:
        """Samples that each step of one rank used."""
        return self.root / "sample_ids" / f"rank_{rank_id}.jsonl"

    def data_pipeline(self, rank_id: int) -> Path:
        """MindData profiling output of one rank."""
        return self.root / "datapipe" / f"rank_{rank_id}"


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write `content` so that `path` holds either its old content or all of the new one, also after a kill."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with temporary.open("wb") as f:
            f.write(content.encode() if isinstance(content, str) else content)
            f.flush()
            os.fsync(f.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json_atomic(path: Path, value: object) -> None:
    """Write `value` as indented JSON, atomically. NaN and infinities become null."""
    write_atomic(path, msgspec.json.format(msgspec.json.encode(value), indent=1))


def append_json_lines(path: Path, records: Iterable[Mapping[str, object]]) -> None:
    """Append records in one write, starting a new line if a kill left a torn one."""
    lines = b"".join(msgspec.json.encode(r) + b"\n" for r in records)
    if not lines:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as f:
        f.write((b"\n" if _ends_torn(path) else b"") + lines)


def _ends_torn(path: Path) -> bool:
    with path.open("rb") as f:
        if f.seek(0, os.SEEK_END) == 0:
            return False
        f.seek(-1, os.SEEK_END)
        return f.read(1) != b"\n"
