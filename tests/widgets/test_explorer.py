import altair as alt
import pandas as pd
import pytest

import workbench as wb
from tests.made_run import made_samples, made_steps, write_run
from workbench.widgets.explorer import LAST, TABS
from workbench.widgets.slot import Slot

SAMPLES = pd.concat([made_samples("c-100", 100), made_samples("c-200", 200, better=0.3)])


@pytest.fixture
def run_dir(tmp_path):
    steps = pd.concat([made_steps(200, rank_id=r) for r in range(2)])
    write_run(tmp_path / "other", made_steps(50))
    return write_run(tmp_path / "run", steps, samples=SAMPLES)


@pytest.fixture
def explorer(run_dir):
    return wb.explore(run_dir)


def test_it_opens_on_everything(explorer, run_dir):
    assert (explorer.run_path, explorer.ranks, explorer.steps) == (str(run_dir), (0, 1), (1, 200))
    assert (explorer.checkpoint, explorer.tab) == (LAST, "Overview")
    assert len(explorer.tables["training_steps"]) == 400


def test_filters_are_shared_and_can_be_taken_back(explorer):
    explorer.ranks, explorer.steps = (1,), (50, 99)
    steps = explorer.tables["training_steps"]
    assert set(steps.rank_id) == {1}
    assert (steps.step.min(), steps.step.max()) == (50, 99)
    assert len(explorer.tables["parameter_groups"]) == 50 * 3
    explorer.show_all_steps()
    assert explorer.steps == (1, 200)


def test_every_tab_draws(explorer):
    for tab in TABS:
        explorer.tab = tab
        shown = [slot.widget.children[0] for slot in explorer._slots[tab].values()]
        assert all(isinstance(w, alt.JupyterChart) or w.value for w in shown)


def test_only_the_tab_on_show_is_drawn(explorer):
    assert explorer._stale == set(TABS) - {"Overview"}
    explorer.tab = "Training"
    assert explorer._stale == {"Evaluation"}
    explorer.steps = (1, 10)
    assert explorer._stale == {"Overview", "Evaluation"}


def test_dragging_over_the_loss_sets_the_steps(explorer):
    chart = explorer._slots["Overview"]["loss"].widget.children[0]
    chart._vl_selections = {"brush": {"value": {"step": [30.2, 79.9]}, "store": []}}
    assert explorer.steps == (30, 80)


def test_a_checkpoint_is_chosen(explorer):
    explorer.tab, explorer.checkpoint = "Evaluation", "c-100"
    assert "against" not in explorer._slots["Evaluation"]["quality"]._text.value
    explorer.checkpoint = "c-200"
    assert "previous, also the best: c-100" in explorer._slots["Evaluation"]["quality"]._text.value


def test_another_run_is_opened(explorer, run_dir):
    explorer.run_path = str(run_dir.parent / "other")
    assert explorer.run.run_id == "other"
    assert (explorer.steps, explorer.ranks) == ((1, 50), (0,))


def test_a_run_that_cannot_be_opened_leaves_the_present_one(explorer, run_dir):
    (run_dir.parent / "other" / "run.json").unlink()
    for path in (run_dir.parent / "other").rglob("*.jsonl"):
        path.unlink()
    explorer.run_path = str(run_dir.parent / "other")
    assert "Fix:" in explorer._problem.value
    assert explorer.run.run_id == "run"


def test_a_run_without_training_steps(tmp_path):
    run = write_run(tmp_path / "bare", made_steps(20), samples=SAMPLES)
    for path in (run / "metrics").iterdir():
        path.unlink()
    explorer = wb.explore(run)
    explorer.tab = "Training"
    assert "No rows of table training_steps" in explorer._slots["Training"]["loss"]._text.value


def test_a_slot_keeps_its_chart_widget():
    slot = Slot()
    chart = alt.Chart(pd.DataFrame({"x": [1]})).mark_point().encode(x="x:Q")
    slot.show(chart)
    first = slot.widget.children[0]
    slot.show(chart)
    assert slot.widget.children[0] is first
