"""The parts of the memory notebook on real samples, and what they say where tables are missing."""

import pytest

import workbench as wb
from workbench.report import render_report
from workbench.widgets import memory_sections as sections
from workbench.widgets.sections import Text

PER_RANK = (sections.pool, sections.peak_parts, sections.memory_map, sections.holes, sections.savings)
ALL_RANKS = (sections.peaks, sections.rank_peaks, sections.long_lives, sections.floors, sections.growth)


def shown(tables, rank_id):
    return {part.__name__: part(tables, rank_id) for part in PER_RANK} | {p.__name__: p(tables) for p in ALL_RANKS}


def test_every_part_shows_something_on_a_real_profile(data_samples):
    tables = sections.tables_of(wb.open_run(data_samples / "level1_two_of_eight", quiet=True))
    assert sections.fullest_rank(tables) == 0
    parts = shown(tables, 0)
    assert [name for name, part in parts.items() if isinstance(part, Text)] == ["growth"]  # one profiled step
    assert "aten::mm" in parts["holes"].to_html()


def test_a_cpu_record_has_a_map_but_no_names(data_samples):
    tables = sections.tables_of(wb.open_run(data_samples / "cpu_profile", quiet=True))
    parts = shown(tables, sections.fullest_rank(tables))
    missing = [name for name, part in parts.items() if isinstance(part, Text)]
    assert missing == ["peak_parts", "savings", "long_lives", "growth"]
    assert "profile_memory=True" in parts["peak_parts"].text


def test_without_memory_every_part_says_how_to_collect_it():
    assert sections.fullest_rank({}) == 0
    assert all("profile with profile_memory=True" in part.text for part in shown({}, 0).values())


@pytest.mark.parametrize("sample", ["level1_two_of_eight", "cpu_profile"])
def test_the_notebook_runs(data_samples, tmp_path, sample):
    notebook = data_samples.parent / "notebooks" / "explore" / "memory.ipynb"
    render_report(notebook, tmp_path / "out.ipynb", run_path=str(data_samples / sample))
