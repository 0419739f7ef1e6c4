"""The start page of a run that has recorded steps, of one that has only a profile, and of one that has neither."""

import pandas as pd
import pytest

import workbench as wb
from tests.made_run import made_samples, made_steps, write_run
from workbench.widgets import sections
from workbench.widgets.glance import Glance


def glance_of(path):
    run = wb.open_run(path, quiet=True)
    return Glance(run, sections.tables_of(run))


def test_a_recorded_run_shows_its_steps_and_lacks_nothing(tmp_path):
    samples = pd.concat([made_samples("c-100", 100), made_samples("c-200", 200)])
    glance = glance_of(write_run(tmp_path / "run", made_steps(200), samples=samples))
    parts = [glance.loss(), glance.step_times(), glance.time_shares(), glance.quality()]
    assert all(part is not None and not isinstance(part, sections.Text) for part in parts)
    assert glance.lacking() is None


def test_a_profile_alone_is_shown_and_what_is_not_there_is_said_once(data_samples):
    glance = glance_of(data_samples / "simulated_cluster_8")
    assert glance.loss() is None
    assert glance.quality() is None
    ranks = glance.step_times().data
    assert sorted(set(ranks["rank_id"])) == list(range(8))
    assert {"op_type", "total_us"} <= set(glance.time_shares().data.columns)
    text = glance.lacking().text
    assert text.count("No rows of table training_steps") == 1
    assert "Not shown: loss, step time, shares of the time." in text
    assert text.endswith("of the profile: the mean step of each rank by part, the largest operators.")


def test_no_table_of_a_profile_is_read_beside_recorded_steps(tmp_path, monkeypatch):
    run = wb.open_run(write_run(tmp_path / "run", made_steps(200)), quiet=True)
    monkeypatch.setattr("workbench.widgets.device_sections.profiled_ranks", lambda _tables: pytest.fail("was read"))
    monkeypatch.setattr("workbench.widgets.device_sections.operators", lambda *_words: pytest.fail("was read"))
    glance = Glance(run, sections.tables_of(run))
    assert glance.step_times() is not None
    assert glance.time_shares() is not None


def test_without_steps_and_profile_nothing_is_drawn(tmp_path):
    (tmp_path / "my.yaml").write_text("learning_rate: 0.001\n")
    glance = glance_of(tmp_path)
    assert [glance.loss(), glance.step_times(), glance.time_shares(), glance.quality()] == [None] * 4
    assert "instead" not in glance.lacking().text
