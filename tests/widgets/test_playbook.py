import pandas as pd
import pytest

from tests.made_run import made_steps, write_run
from workbench.errors import UnknownParameterError
from workbench.widgets import playbook, sections
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


def test_charts_stand_side_by_side_and_tables_one_below_the_other(two_runs, monkeypatch):
    case = open_case("T1", two_runs[0], two_runs[1])
    chart = case.beside(sections.loss).to_dict()
    names = [f"before: {case.examined.run.run_id}", f"after: {case.fixed.run.run_id}"]
    assert [part["title"] for part in chart["hconcat"]] == names
    stacked = case.beside(lambda _tables: pd.DataFrame({"x": [1]}))
    assert [name for name, _part in stacked.parts] == names
    shown = []
    monkeypatch.setattr(playbook, "display", lambda *parts: shown.append(parts))
    stacked._ipython_display_()
    assert [(repr(name), list(table["x"])) for name, table in shown] == [(name, [1]) for name in names]
    missing = case.beside(sections.quality)
    assert repr(missing).count("No rows of table eval_samples") == 2


def test_both_runs_stand_in_one_chart_with_the_onset(data_samples):
    case = open_case("T1", str(data_samples / "lab_runs" / "no_clipping"))
    lines, onset = case.over_steps("loss").to_dict()["layer"]
    assert lines["encoding"]["color"]["scale"]["domain"] == ["before: no_clipping", "after: clipped"]
    spec = case.over_steps("loss").to_dict()
    assert [row["step"] for row in spec["datasets"][onset["data"]["name"]]] == [case.findings[0].steps.first]


def test_a_run_that_fell_ill_nowhere_has_no_onset(two_runs):
    spec = open_case("T1", *two_runs).over_steps("loss").to_dict()
    assert "layer" not in spec
    assert len(spec["encoding"]["color"]["scale"]["domain"]) == 2


def test_jobs_of_one_folder_are_lines_of_one_chart(data_samples):
    case = open_case("T10", str(data_samples / "cases" / "11-slower-after-upgrade"))
    alone, both = case.jobs().to_dict(), case.jobs(after_fix=True).to_dict()
    assert alone["encoding"]["color"]["scale"]["domain"] == ["earlier", "later"]
    rows = {name: pd.DataFrame(rows) for name, rows in both["datasets"].items()}
    before, after = (rows[part["data"]["name"]].groupby("run")["value"].median() for part in both["hconcat"])
    assert before["later"] > 1.25 * before["earlier"]  # 6,597 and 5,043 ms
    assert abs(after["later"] / after["earlier"] - 1) < 0.01


def test_operators_of_both_jobs_stand_beside_each_other(data_samples):
    spec = open_case("T10", str(data_samples / "cases" / "11-slower-after-upgrade")).operators().to_dict()
    bars = {(r["part"], r["run"]): r["ms"] for r in spec["datasets"][spec["data"]["name"]]}
    assert bars["MatMulV2", "earlier"] == pytest.approx(2710.4)
    assert bars["FlashAttentionScore", "later"] == 0
    assert bars["SoftmaxV2", "later"] == pytest.approx(700.0)


def test_one_job_has_no_operators_to_compare(data_samples):
    alone = open_case("T10", str(data_samples / "simulated_devices" / "healthy")).operators()
    assert "two jobs" in repr(alone) or "No rows of table kernel_totals" in repr(alone)


def test_the_packaged_sample_has_its_fixed_run(data_samples):
    case = open_case("T8", str(data_samples / "lab_runs" / "recompile"))
    assert case.fixed.run.root.name == "healthy"


def test_an_unknown_playbook_is_refused(two_runs):
    with pytest.raises(UnknownParameterError, match="T99"):
        open_case("T99", two_runs[0])
