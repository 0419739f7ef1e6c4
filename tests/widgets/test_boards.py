import shutil

import altair as alt
import pytest

from tests.made_run import made_steps, write_run
from workbench.errors import UnknownParameterError
from workbench.widgets.boards import Board
from workbench.widgets.live import Live
from workbench.widgets.tabs import BOARDS


def rows(chart):
    return max(row["step"] for data in chart.chart.to_dict()["datasets"].values() for row in data if "step" in row)


def test_a_board_follows_a_run_while_its_buttons_say_so(tmp_path):
    board = Board(write_run(tmp_path / "run", made_steps(30)), "Training quality")
    chart = board.page.slots["loss"].widget.children[0]
    assert isinstance(chart, alt.JupyterChart)
    assert rows(chart) == 30
    shutil.rmtree(tmp_path / "run")
    write_run(tmp_path / "run", made_steps(50))
    assert rows(chart) == 30  # nobody pressed play
    board._live.play.value = 1  # as the browser's clock sets it
    assert rows(chart) == 50
    assert board.steps == (1, 50)
    chart._vl_selections = {"brush": {"value": {"step": [10.2, 19.9]}, "store": []}}
    assert board.steps == (10, 20)
    board.refresh()
    assert board.steps == (10, 20)
    shutil.rmtree(tmp_path / "run")
    board.refresh()
    assert "does not exist" in board.page.note.value


def test_the_board_on_data_says_what_ails_them(data_samples):
    board = Board(data_samples / "data_faults" / "run", "Data health")
    shown = [name for name, slot in board.page.slots.items() if slot.widget.layout.display != "none"]
    assert {"mix", "order", "batches"} <= set(shown)


def test_boards_are_named(tmp_path):
    with pytest.raises(UnknownParameterError, match="Training quality"):
        Board(write_run(tmp_path / "run", made_steps(5)), "Weather")
    assert list(BOARDS) == ["Training quality", "Resource efficiency", "Data health"]


def test_ticks_that_queued_up_are_dropped_and_stopping_is_no_tick():
    seen = []
    live = Live(lambda: seen.append(1))
    live.play.value = 1
    live.play.value = 2  # at once after the first has ended
    assert seen == [1]
    live._done -= live.every.value
    live.play.value = 0  # the stop button sets it back
    assert seen == [1]
    live.play.value = 1
    assert seen == [1, 1]
    live.every.value = 60
    assert live.play.interval == 60_000
