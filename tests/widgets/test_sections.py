import pandas as pd
import pytest

import workbench as wb
from tests.made_run import made_samples, made_steps, write_run
from workbench.findings.diagnosis import diagnose
from workbench.widgets import sections

SAMPLES = pd.concat([made_samples("c-100", 100), made_samples("c-200", 200, better=0.3)])
PARTS = [
    sections.quality, sections.quality_over_time, sections.changes, sections.stability, sections.loss, sections.course,
    sections.gradient_norm, sections.learning_rate, sections.group_ratios, sections.efficiency, sections.step_times,
    sections.speed, sections.time_shares, sections.memory,
]  # fmt: skip


@pytest.fixture
def run(tmp_path):
    write_run(tmp_path / "before", made_steps(50), config={"learning_rate": 0.001, "batch_size": 8})
    after = write_run(
        tmp_path / "run", made_steps(200), samples=SAMPLES, config={"learning_rate": 0.002, "batch_size": 8}
    )
    info = (after / "run.json").read_text()
    (after / "run.json").write_text(info.replace('"start_ns": 178', '"start_ns": 179'))
    return wb.open_run(after, quiet=True)


@pytest.mark.parametrize("part", PARTS, ids=lambda p: p.__name__)
def test_every_part_shows_and_says_what_is_missing(run, part):
    shown = part(sections.tables_of(run))
    assert not isinstance(shown, sections.Text)
    missing = part({})
    assert missing.text.startswith("No rows of table")
    assert "To have them:" in missing._repr_html_()


def test_a_column_that_was_not_recorded_is_named():
    bare = {"training_steps": made_steps(30).assign(gradient_norm=float("nan"))}
    assert sections.gradient_norm(bare).text.startswith("Not recorded: gradient_norm")
    assert len(sections.course(bare).hconcat) == 1


def test_tables_end_at_the_checkpoint(run):
    tables = sections.tables_of(run, checkpoint="c-100")
    assert tables["training_steps"]["step"].max() == 100
    assert set(tables["eval_samples"]["checkpoint"]) == {"c-100"}
    assert "checkpoint c-100 · step 100 of 200" in sections.heading(run, tables, "c-100").text


def test_a_checkpoint_without_evaluation_is_named(run):
    assert "c-300 has no evaluation" in sections.quality(sections.tables_of(run), "c-300").text
    assert "c-300 has no evaluation" in sections.changes(sections.tables_of(run), "c-300").text


def test_configuration_is_compared_with_the_run_before(run):
    text = sections.configuration(run, sections.tables_of(run)).to_html()
    assert "config.learning_rate" in text
    assert "0.002" in text
    assert "batch_size" not in text
    first = wb.open_run(run.root.parent / "before", quiet=True)
    assert "No earlier recorded run" in sections.configuration(first, sections.tables_of(first)).text


def test_next_steps_name_the_command(run):
    diagnosis = diagnose(run)
    assert f"workbench open {run.root}" in sections.next_steps(run, diagnosis).text
    assert sections.next_steps(run, diagnosis, is_open=True).text.startswith("The notebooks in the folders beside this")


def test_losses_measured_inside_the_training_are_drawn_where_no_checkpoint_was_evaluated(data_samples):
    evals = wb.open_run(data_samples / "subset_starved", quiet=True).table("evals")
    chart = sections.quality_over_time({"evals": evals}).to_dict()
    drawn = {row["subset"] for rows in chart["datasets"].values() for row in rows if "subset" in row}
    assert drawn == {"arithmetic", "english", "python"}
    unknown = sections.quality_over_time({"evals": evals.assign(step=pd.NA)})
    assert "Nothing of a known step" in unknown.text
