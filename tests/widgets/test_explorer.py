import asyncio
import shutil
from pathlib import Path

import altair as alt
import ipywidgets
import pandas as pd
import pytest

import workbench as wb
from tests.made_run import made_samples, made_steps, write_run
from workbench.widgets import explorer as module
from workbench.widgets.explorer import BOARDS_TAB, TITLES
from workbench.widgets.pickers import ALL, LAST
from workbench.widgets.slot import Slot
from workbench.widgets.tabs import BOARDS

SAMPLES = pd.concat([made_samples("c-100", 100), made_samples("c-200", 200, better=0.3)])


def made_runs(folder):
    steps = pd.concat([made_steps(200, rank_id=r) for r in range(2)])
    write_run(folder / "other", made_steps(50))
    return write_run(folder / "run", steps, samples=SAMPLES)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """An explorer for the tests that change filters only."""
    return wb.explore(made_runs(tmp_path_factory.mktemp("runs")))


@pytest.fixture
def explorer(kept):
    kept.ranks, kept.checkpoint, kept.subset, kept.tab = (0, 1), LAST, ALL, "Overview"
    kept.show_all_steps()
    return kept


@pytest.fixture
def run_dir(tmp_path):
    return made_runs(tmp_path)


def test_it_opens_on_everything(explorer):
    assert (explorer.run.run_id, explorer.ranks, explorer.steps) == ("run", (0, 1), (1, 200))
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


def drawn(explorer, tab):
    """What the slots of a tab show, without those that are hidden."""
    explorer.tab = tab
    slots = explorer.page(tab).slots
    return {n: s.widget.children[0] for n, s in slots.items() if s.widget.layout.display != "none"}


def test_every_tab_draws_or_says_what_is_missing(explorer):
    for tab in [t for t in TITLES if t not in (BOARDS_TAB, "Compare")]:
        shown = drawn(explorer, tab)
        assert all(isinstance(w, alt.JupyterChart | ipywidgets.VBox) or w.value for w in shown.values())
        lacking = explorer.page(tab).lacking.value
        assert (len(shown) < len(explorer.page(tab).slots)) == ("To have" in lacking)
        assert lacking.count("No rows of table kernels") <= 1


def test_only_the_tab_on_show_is_drawn(run_dir):
    explorer = wb.explore(run_dir)
    assert explorer._stale == set(TITLES) - {"Overview"}
    explorer.tab = "Training"
    assert explorer._stale == set(TITLES) - {"Overview", "Training"}
    explorer.steps = (1, 10)
    assert explorer._stale == set(TITLES) - {"Training"}
    assert set(explorer._pages) == {"Overview", "Training"}


def test_dragging_over_the_loss_sets_the_steps(explorer):
    chart = drawn(explorer, "Overview")["loss"]
    chart._vl_selections = {"brush": {"value": {"step": [30.2, 79.9]}, "store": []}}
    assert explorer.steps == (30, 80)


def test_a_checkpoint_is_chosen(explorer):
    explorer.checkpoint = "c-100"
    assert "against" not in drawn(explorer, "Evaluation")["quality"].value
    explorer.checkpoint = "c-200"
    assert "previous, also the best: c-100" in drawn(explorer, "Evaluation")["quality"].value


def test_a_subset_is_chosen(explorer):
    assert list(explorer._pickers.subset.options) == [ALL, "code", "prose", "长文本"]
    explorer.tab, explorer.subset = "Evaluation", "code"
    assert set(explorer.tables["eval_samples"]["subset"]) == {"code"}
    explorer.subset = ALL
    assert set(explorer.tables["eval_samples"]["subset"]) == {"code", "prose", "长文本"}


def test_a_filter_that_leaves_nothing_is_told_from_a_missing_table(explorer):
    explorer.tab, explorer.steps, explorer.ranks = "Evaluation", (150, 160), (1,)
    assert len(explorer.tables["training_steps"]) == 11
    page = explorer.page("Evaluation")  # checkpoints were evaluated at steps 100 and 200
    assert "leave no rows of evals, eval_samples" in page.note.value
    assert "eval_samples" not in page.lacking.value


def test_a_trace_without_marks_of_steps_is_not_put_down_to_the_filters(data_samples):
    shown = wb.explore(data_samples / "cpu_profile")
    shown.tab = "Timeline"
    assert "trace_events" in shown.run.tables
    assert shown.page("Timeline").note.value == ""


def longer(run_dir, steps):
    shutil.rmtree(run_dir)
    write_run(run_dir, pd.concat([made_steps(steps, rank_id=r) for r in range(2)]), samples=SAMPLES)


def test_a_run_that_goes_on_is_followed(run_dir):
    explorer = wb.explore(run_dir)
    explorer.ranks = (1,)
    longer(run_dir, 260)
    explorer.refresh()
    assert (explorer.steps, explorer.ranks) == ((1, 260), (1,))
    explorer.steps = (20, 40)
    longer(run_dir, 300)
    explorer.refresh()
    assert explorer.steps == (20, 40)
    assert explorer._rows.steps() == (1, 300)


def test_all_filters_stay_while_a_run_that_grows_is_followed(run_dir):
    explorer = wb.explore(run_dir)
    explorer.tab, explorer.ranks, explorer.rank = "Training", (1,), 1
    explorer.subset, explorer.checkpoint, explorer.steps = "prose", "c-200", (20, 150)
    chosen = {n: getattr(explorer, n) for n in ("tab", "ranks", "rank", "subset", "checkpoint", "steps")}
    for tick, last in enumerate((220, 240), 1):
        append_steps(run_dir, last)
        explorer._live._done -= explorer._live.every.value  # the interval has passed
        explorer._live.play.value = tick  # as the browser's clock sets it
        assert explorer._pickers.steps.max == last
        assert {n: getattr(explorer, n) for n in chosen} == chosen
    explorer.show_all_steps()
    append_steps(run_dir, 260)
    explorer._live._done -= explorer._live.every.value
    explorer._live.play.value = 3
    assert explorer.steps == (1, 260)
    assert explorer.tables["training_steps"]["step"].max() == 260
    explorer._live.play.value = 0  # the stop button
    append_steps(run_dir, 280)
    assert explorer.steps == (1, 260)


def append_steps(run_dir, last):
    """Write the lines of further steps behind those that are there, as a training run does."""
    longer = write_run(run_dir.parent / "longer", pd.concat([made_steps(last, rank_id=r) for r in range(2)]))
    for path in (longer / "metrics").iterdir():
        there = (run_dir / "metrics" / path.name).read_text().count("\n")
        with (run_dir / "metrics" / path.name).open("a") as file:
            file.writelines(path.read_text().splitlines(keepends=True)[there:])
    shutil.rmtree(longer)


def test_two_runs_are_compared(run_dir):
    explorer = wb.explore(run_dir)
    slow = made_steps(50).assign(step_us=lambda s: s["step_us"] * 1.5)
    shutil.rmtree(run_dir.parent / "other")
    write_run(run_dir.parent / "other", slow)
    explorer.tab = "Compare"
    assert "Choose a second run" in explorer.page("Compare").lacking.value
    explorer.other_path = str(run_dir.parent / "other")
    shown = drawn(explorer, "Compare")
    assert "longer than that of A: run" in shown["step times"].value
    assert {"parts", "losses"} <= {n for n, w in shown.items() if isinstance(w, alt.JupyterChart)}
    assert "B: other" in explorer.page("Compare").lacking.value  # it has no kernels
    explorer.other_path = str(run_dir.parent / "nowhere")
    assert "nowhere" in explorer._problem.value


def test_the_three_boards_draw(explorer):
    explorer.tab = BOARDS_TAB
    boards = explorer.page(BOARDS_TAB)
    for name in BOARDS:
        boards.choice.value = name
        slots = boards.pages[name].slots.values()
        assert any(s.widget.layout.display != "none" for s in slots) or name == "Data health"


def test_another_run_is_opened(run_dir):
    explorer = wb.explore(run_dir)
    explorer.run_path = str(run_dir.parent / "other")
    assert explorer.run.run_id == "other"
    assert (explorer.steps, explorer.ranks) == ((1, 50), (0,))
    assert explorer._pickers.run.value == explorer.run_path
    elsewhere = write_run(run_dir.parent / "deeper" / "third", made_steps(30))  # not beside the first
    explorer._pickers.path.value = str(elsewhere)
    assert (explorer.run.run_id, explorer.steps) == ("third", (1, 30))
    assert explorer._pickers.run.label == "third"


def test_a_run_from_elsewhere_is_opened_and_diagnosed_once(run_dir, monkeypatch):
    explorer = wb.explore(run_dir)
    opened, diagnosed = [], []
    monkeypatch.setattr(module, "open_run", lambda path, **k: opened.append(Path(path).name) or wb.open_run(path, **k))
    monkeypatch.setattr(module, "diagnose", lambda run: diagnosed.append(run.run_id) or wb.diagnose(run))
    explorer._pickers.path.value = str(write_run(run_dir.parent / "deeper" / "third", made_steps(30)))
    assert (opened, diagnosed) == (["third"], ["third"])
    explorer._pickers.run.value = str(run_dir.parent / "other")
    assert opened == ["third", "other"]


def test_a_run_that_was_left_again_is_not_diagnosed(run_dir, monkeypatch):
    diagnosed = []
    monkeypatch.setattr(module, "DIAGNOSE_AFTER_S", 0.05)
    monkeypatch.setattr(module, "diagnose", lambda run: diagnosed.append(run.run_id) or wb.diagnose(run))

    async def in_a_kernel():
        explorer = wb.explore(run_dir)
        explorer.run_path = str(run_dir.parent / "other")
        assert (explorer.run.run_id, explorer.diagnosis) == ("other", None)
        await asyncio.sleep(0.3)
        return explorer

    assert asyncio.run(in_a_kernel()).diagnosis is not None
    assert diagnosed == ["other"]


def test_a_run_that_cannot_be_opened_leaves_the_present_one(run_dir):
    explorer = wb.explore(run_dir)
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
    assert "loss" in explorer.page("Training").lacking.value
    assert explorer.page("Training").lacking.value.count("No rows of table training_steps") == 1


def test_a_drag_is_told_when_it_has_ended_not_in_its_middle(explorer):
    assert not drawn(explorer, "Overview")["loss"].max_wait


def test_a_slot_keeps_its_chart_widget():
    slot = Slot()
    chart = alt.Chart(pd.DataFrame({"x": [1]})).mark_point().encode(x="x:Q")
    slot.show(chart)
    first = slot.widget.children[0]
    slot.show(chart)
    assert slot.widget.children[0] is first


def test_a_slot_shows_a_frame_as_a_table():
    slot = Slot()
    slot.show(pd.DataFrame({"wait_us": [2.5]}))
    assert "wait, µs" in slot.widget.children[0].value


def test_a_rule_that_breaks_is_told_on_the_page(explorer, monkeypatch):
    def broken(_run):
        raise ZeroDivisionError("of a rule")

    monkeypatch.setattr(module, "diagnose", broken)
    with pytest.raises(ZeroDivisionError):
        explorer.refresh()
    assert "ZeroDivisionError: of a rule" in explorer._problem.value
