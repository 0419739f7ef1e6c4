"""Whole directories of damaged files through `open_run`: no crash, no silent emptiness. More than 2,000 inputs."""

import shutil
from pathlib import Path

import pytest

import workbench as wb
from tests.readers.mutations import BYTE_MUTATIONS, TABLE_MUTATIONS, mutate
from workbench import batches
from workbench.errors import UnknownContentError
from workbench.readers.discovery import KINDS_BY_NAME

DATA_SAMPLES = Path(__file__).parents[1] / "data_samples"
LARGEST_BYTES = 150_000  # of a sample: damage does not need more
FOLDERS = (
    "cpu_profile",
    "data_pipeline_starved",
    "level1_database",
    "level1_two_of_eight",
    "mindinsight_profile",
    "pipeline_two_stages",
    "profile_2023",
    "rehearsal_run",
    "summary_events",
    "training_logs",
)
BINARY = (".db", ".parquet", ".pb", ".gz")
SEEDS = 22  # each mutation comes first once for each file
ODD_NAMES = ("<script>alert(1)</script>", 'a "quoted" one', "two\nlines", "..%2f..", "[1]*?", "名前")


def files_of(folder: str) -> list[Path]:
    found = sorted(p for p in (DATA_SAMPLES / folder).rglob("*") if p.is_file() and p.name != "README.md")
    return [p for p in found if p.stat().st_size <= LARGEST_BYTES and ".workbench" not in p.parts]


def test_there_are_more_than_two_thousand_inputs():
    assert sum(len(files_of(f)) for f in FOLDERS) * SEEDS > 2000


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_damaged_directories(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "BATCH_FILES", 1)  # so that each file answers for itself
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    samples = files_of(folder)
    for seed in range(SEEDS):
        root = tmp_path / ODD_NAMES[seed % len(ODD_NAMES)]
        damages = {}
        for number, sample in enumerate(samples):
            target = root / sample.relative_to(DATA_SAMPLES / folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            mutations = BYTE_MUTATIONS if sample.suffix in BINARY else TABLE_MUTATIONS
            content, damages[target] = mutate(sample.read_bytes(), seed + number, mutations)
            target.write_bytes(content)
        check_directory(root, damages)
        shutil.rmtree(root)
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)


def check_directory(root: Path, damages: dict[Path, str]) -> None:
    """Every file gives rows or a note, or is named as unknown; no reader fails in a way that it does not know."""
    try:
        run = wb.open_run(root, quiet=True, jobs=1)
    except UnknownContentError:
        return  # nothing was recognisable, and that is what it says
    run.read_all()
    failed = [n for n in run.notes if "The reader of" in n.problem]
    assert failed == [], [(n, [how for p, how in damages.items() if p.name in n.file]) for n in failed]
    noted = "\n".join(f"{n.file} {n.problem}" for n in run.notes)
    unknown = set(run._discovery.unknown)
    silent = [
        (str(batch.sources[0].path), damages[batch.sources[0].path])
        for batch in run._ingest._batches
        if batch.sources[0].tables
        and batch.sources[0].tables == KINDS_BY_NAME[batch.kind].tables  # no better file of the same capture
        and not run._ingest._done[batch.key].tables
        and batch.sources[0].path.name not in noted
        and batch.sources[0].path not in unknown
    ]
    assert silent == []
    assert run.coverage()["tables"] == run.tables
    for name in run.tables:
        assert 0 < len(run.table(name)) <= run.count(name)
    assert "<script>" not in run._repr_html_()
    assert str(run)
