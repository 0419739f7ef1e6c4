"""The parts of the layer notebook: the damaged layer is named, a healthy course is not, missing tables are told."""

import workbench as wb
from tests.analyses.test_layer_statistics import made
from workbench.findings.diagnosis import Diagnosis
from workbench.widgets import layer_sections as sections
from workbench.widgets.sections import Text


def test_the_verdict_names_the_damaged_layer_of_the_sample(data_samples):
    tables = sections.tables_of(wb.open_run(data_samples / "layer_run", quiet=True))
    found = sections.verdict(tables)
    assert isinstance(found, Diagnosis)
    assert [c.cause for c in found.causes] == ["layer_drift"]
    assert "blocks.2.mlp_out" in found.causes[0].title
    assert found.causes[0].steps.first in (100, 110)  # damaged after step 100, recorded every 10 steps
    for part in (sections.heatmap, sections.curves, sections.positions):
        assert part(tables).to_dict()


def test_healthy_and_short_courses_say_so():
    healthy = sections.verdict({"layer_statistics": made()})
    assert "No layer departs from its kind in 40 records of 8 layers" in healthy.text
    few = made()
    assert "too few" in sections.verdict({"layer_statistics": few[few["step"] <= 50]}).text


def test_without_a_table_every_part_says_how_to_collect_it():
    for part in (sections.heatmap, sections.curves, sections.positions, sections.verdict):
        found = part({})
        assert isinstance(found, Text)
        assert "LayerProbe" in found.text
