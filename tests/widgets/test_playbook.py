import pandas as pd
import pytest

from tests.made_run import made_steps, write_run
from workbench.errors import UnknownParameterError
from workbench.widgets import sections
from workbench.widgets.playbook import NOT_YET, open_case


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [str(write_run(folder / name, made_steps(60))) for name in ("first", "second")]


def test_a_run_without_a_fixed_one_is_shown_alone(two_runs):
    case = open_case("T1", two_runs[0])
    assert case.fixed is None
    assert repr(case.proof()) == NOT_YET
    assert case.beside(sections.loss).to_dict().get("hconcat") is None
    assert repr(case).endswith("after the fix: none yet.")


def test_charts_stand_side_by_side_and_tables_one_below_the_other(two_runs):
    case = open_case("T1", two_runs[0], two_runs[1])
    chart = case.beside(sections.loss).to_dict()
    names = [f"before: {case.examined.run.run_id}", f"after: {case.fixed.run.run_id}"]
    assert [part["title"] for part in chart["hconcat"]] == names
    shown = case.beside(lambda _tables: pd.DataFrame({"x<": [1]}))._repr_html_()
    assert shown.count("<table") == 2
    assert "x&lt;" in shown
    missing = case.beside(sections.quality)
    assert repr(missing).count("No rows of table eval_samples") == 2


def test_the_packaged_sample_has_its_fixed_run(data_samples):
    case = open_case("T8", str(data_samples / "lab_runs" / "recompile"))
    assert case.fixed.run.root.name == "healthy"


def test_an_unknown_playbook_is_refused(two_runs):
    with pytest.raises(UnknownParameterError, match="T99"):
        open_case("T99", two_runs[0])
