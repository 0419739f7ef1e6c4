import pandas as pd

from tests.made_run import made_steps
from workbench.findings.diagnosis import Diagnosis
from workbench.findings.finding import Finding
from workbench.tables import TABLES
from workbench.widgets import compare_sections as compare
from workbench.widgets.sections import Missing


def diagnosis(*causes):
    found = tuple(
        Finding(cause=c, playbook="T1", severity="warning", confidence="low", title=t, fix="", source="")
        for c, t in causes
    )
    return Diagnosis(run="r", coverage={"tables": [], "steps": [], "ranks": [], "missing": []}, causes=found)


def test_what_only_one_run_has_stands_first():
    a = diagnosis(("slow_op", "one"), ("small_ops", "two"))
    b = diagnosis(("slow_op", "three"), ("slow_op", "four"), ("recompile", "<five>"))
    found = compare.causes(a, b)
    assert found.values.tolist() == [
        ["small_ops", "A", "two", ""],
        ["recompile", "B", "", "<five>"],
        ["slow_op", "both", "one", "three\nfour"],
    ]
    page = compare.causes_table(a, b).to_html()
    assert "three<br>four" in page
    assert "&lt;five&gt;" in page
    assert "Nothing was found" in repr(compare.causes_table(diagnosis(), diagnosis()))


def test_a_difference_is_told_from_noise():
    columns = TABLES["training_steps"].column_names
    steps, other = (made_steps(60, seed=s).reindex(columns=columns) for s in (0, 1))
    same = compare.verdict({"A": {"training_steps": steps}, "B": {"training_steps": other}})
    assert "within the noise" in repr(same)
    slow = other.assign(step_us=other["step_us"] * 1.2)
    found = repr(compare.verdict({"A": {"training_steps": steps}, "B": {"training_steps": slow}}))
    assert "longer than that of A" in found
    assert "beyond the noise" in found
    few = compare.verdict({"A": {"training_steps": steps.head(5)}, "B": {"training_steps": slow}})
    assert "too few" in repr(few)


def test_the_setting_behind_the_parting_of_two_recorded_runs():
    columns = TABLES["training_steps"].column_names
    steps = made_steps(200).reindex(columns=columns)
    other = steps.assign(loss=steps["loss"] + 0.002 * (steps["step"] - 100).clip(lower=0))
    values = [("config.epsilon", "1e-8"), ("config.epsilon", "1e-3")]
    told = [pd.DataFrame([value], columns=["name", "value"]) for value in values]
    both = {"A": {"training_steps": steps, "settings": told[0]}, "B": {"training_steps": other, "settings": told[1]}}
    found = repr(compare.parting(both))
    assert "The loss of B ends 0.161 nats" in found  # 0.002 * mean of 61 to 100
    assert "epsilon is 0.001 instead of 1e-08" in found
    both["B"] = {"training_steps": steps, "settings": told[1]}
    assert "No setting of precision or optimizer" in repr(compare.parting(both))


def test_a_run_without_a_table_is_named():
    both = {"A": {"training_steps": made_steps(20)}, "B": {}}
    for part in (compare.verdict, compare.loss, compare.parting, compare.operators, compare.settings):
        found = part(both)
        assert isinstance(found, Missing)
        assert "B" in found.text
    empty = {name: pd.DataFrame() for name in both}
    assert isinstance(compare.step_parts(both, empty), Missing)
