"""The parts of the evaluation notebooks on a real run with a starved subset, a healthy one, CSV series, and nothing."""

import altair as alt
import pandas as pd
import pytest

import workbench as wb
from tests.findings.test_subset_course import MIX, series
from workbench.widgets import subset_sections as sections
from workbench.widgets.sections import Text

PARTS = ("drops", "courses", "mix", "visible", "choice", "ranking", "protocols", "layers", "positions")
OF_SUBSET = ("mix_change", "tokens", "lengths")


@pytest.fixture(scope="module")
def starved(data_samples):
    return wb.open_run(data_samples / "subset_starved", quiet=True)


def cause_of(run, **options):
    return [(f.cause, f.culprit.subset) for f in wb.diagnose(run, **options).causes if f.playbook == "T5"]


def test_the_real_training_names_the_starved_subset_and_its_step(starved):
    found = [f for f in wb.diagnose(starved).causes if f.playbook == "T5"]
    assert [(f.cause, f.culprit.subset, f.confidence) for f in found] == [("data_mix_shift", "arithmetic", "high")]
    assert abs(found[0].steps.first - 120) <= 20  # one evaluation
    assert cause_of(starved, step=120) == []  # up to the change it is healthy


def test_every_part_shows_something_on_the_starved_run(starved):
    tables = sections.tables_of(starved)
    assert sections.suspect(tables) == "arithmetic"
    for name in PARTS:
        assert getattr(sections, name)(tables) is not None
    for name in OF_SUBSET:
        assert getattr(sections, name)(tables, "arithmetic") is not None
    chart = sections.courses(tables)
    assert isinstance(chart, alt.LayerChart)
    assert len(chart.to_dict()["datasets"]) >= 2
    assert isinstance(sections.mix(tables), alt.Chart)
    assert isinstance(sections.positions(tables), alt.FacetChart)
    assert "arithmetic" in sections.mix_change(tables, "arithmetic").to_html()


def test_csv_series_are_enough_for_the_first_checks():
    tables = {"evals": series(1), "data_mix": MIX}
    assert sections.suspect(tables) == "python_tests"
    assert isinstance(sections.courses(tables), alt.LayerChart)
    assert isinstance(sections.mix(tables), alt.Chart)
    assert isinstance(sections.lengths(tables, "python_tests"), Text)
    assert "did not change" in sections.tokens(tables, "python_tests").text


def test_what_is_not_recorded_is_not_called_unchanged():
    nothing = {}
    assert sections.mix_change(nothing, None).text == "Whether the mix changed is not recorded."
    assert sections.mix_change({"data_mix": MIX.head(0)}, None).text == "The mix did not change."
    assert sections.lengths(nothing, None).text == "No per-sample scores are recorded."
    assert "is known" in sections.tokens(nothing, None).text


def test_a_healthy_run_has_no_suspect_and_a_ranking(data_samples):
    tables = sections.tables_of(wb.open_run(data_samples / "rehearsal_run", quiet=True))
    assert sections.suspect(tables) is None
    assert isinstance(sections.choice(tables), alt.LayerChart)
    assert "rehearsal-1_400" in sections.ranking(tables).to_html()
    assert "not profiled" in sections.protocols(tables).to_html()


@pytest.mark.parametrize("name", PARTS)
def test_without_tables_each_part_says_what_is_missing(name):
    assert isinstance(getattr(sections, name)({}), Text)


def test_without_a_suspect_the_parts_say_so():
    for name in OF_SUBSET:
        assert isinstance(getattr(sections, name)({"evals": pd.DataFrame(columns=series(1).columns)}, None), Text)
