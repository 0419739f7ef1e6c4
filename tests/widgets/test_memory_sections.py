"""The parts of the memory notebook on real samples, and what they say where tables are missing."""

import pytest

import workbench as wb
from workbench.reporting.report import render_report
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


def test_a_hand_made_table_of_tensors_is_enough(tmp_path):
    lines = ["a,0,512,1,5,0,0x1000", "b,1,512,2,,0,0x1200", "c,2,1024,3,5,0,0x1400", "d,3,512,4,9,0,0x1800"]
    header = "op_name,tensor_id,size_bytes,alloc_time,free_time,device_id,addr"
    (tmp_path / "tensors.csv").write_text("\n".join([header, *lines]) + "\n")
    tables = sections.tables_of(wb.open_run(tmp_path, quiet=True))
    parts = shown(tables, sections.fullest_rank(tables))
    missing = {name for name, part in parts.items() if isinstance(part, Text)}
    assert missing == {"peaks", "rank_peaks", "pool", "floors", "growth", "holes", "long_lives", "savings"}
    assert parts["holes"].text == "No hole between blocks at the peak."  # a to d lie side by side at time 4
    assert parts["memory_map"].to_dict()["encoding"]["x"]["title"] == "tasks"


@pytest.mark.parametrize("sample", ["level1_two_of_eight", "cpu_profile"])
def test_the_notebook_runs(data_samples, tmp_path, sample):
    notebook = data_samples.parent / "notebooks" / "explore" / "memory.ipynb"
    render_report(notebook, tmp_path / "out.ipynb", run_path=str(data_samples / sample))


def test_stages_of_a_dry_run_stand_against_the_limit(data_samples):
    run = wb.open_run(data_samples / "cases" / "05-oom-first-pipeline-stage", quiet=True)
    spec = sections.stage_peaks({n: run.table(n) for n in ("log_messages", "settings")}).to_dict()
    bars = {r["name"]: (round(r["gib"], 2), r["kind"]) for r in spec["datasets"][spec["data"]["name"]]}
    assert len(bars) == 2 + 4
    assert bars["dryrun_pp4 · 0"] == (round(63040 / 1024, 2), "above the limit")
    assert bars["dryrun_pp4 · 2"] == (round(44032 / 1024, 2), "within the limit")
    assert {r["limit"] for r in spec["datasets"][spec["data"]["name"]]} == {58.0}


def test_a_peak_that_nothing_lowers_is_said(data_samples):
    run = wb.open_run(data_samples / "simulated_devices" / "fragmentation", quiet=True)
    said = sections.savings({"tensor_lifetimes": run.table("tensor_lifetimes")}, 0)
    assert repr(said).startswith("Nothing that was allocated during the record would lower the peak")
