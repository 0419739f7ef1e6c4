import workbench as wb
from workbench.findings.rule_tables import run_tables
from workbench.widgets import device_sections as sections


def test_stalls_are_told_in_milliseconds_and_words(data_samples):
    run = wb.open_run(data_samples / "simulated_devices" / "stall_steps", quiet=True)
    tables = run_tables(run, sections.STEP_TABLES)
    shown = sections.stalls(sections.profiled_steps(tables), tables)
    assert list(shown.index) == [6, 12]
    assert ((shown["lost, ms"] - 200).abs() < 2).all()
    assert set(shown["longest part beyond its typical time"]) == {"exposed transfer"}
    parts = sections.profiled_rank_steps(tables, 0).to_dict()
    assert parts["title"] == "Steps of rank 0"


def test_without_a_profile_the_parts_say_how_to_have_one():
    assert repr(sections.profiled_rank_steps({}, 0)).startswith("No rows of table step_time.")
