"""What too few steps, and steps without a loss, are called."""

import jsonschema
import numpy as np
import pandas as pd
import pytest

from tests.made_run import made_steps, write_run
from workbench.analyses import instability, step_trend
from workbench.findings.diagnosis import diagnose, diagnosis_schema, run_tables
from workbench.findings.judged import NO_LOSS as NO_LOSS_GAP
from workbench.findings.judged import gaps
from workbench.findings.verdict import verdict
from workbench.run import open_run
from workbench.tables import TRAINING_STEPS

HEALTHY = "healthy as far as these tables show"
NO_LOSS = "Nothing found, but no step has a recorded loss, so the training itself is not judged."


@pytest.mark.parametrize(("steps", "words"), [(1, "one recorded step is"), (2, "2 recorded steps are")])
def test_a_few_steps_are_not_called_healthy(tmp_path, steps, words):
    found = diagnose(write_run(tmp_path / "short", made_steps(steps)))
    said = f"Nothing found, but {words} too few to judge training and speed: 30 are needed."
    assert said in repr(found)
    assert said in found._repr_html_()
    assert HEALTHY not in repr(found) + found._repr_html_()
    assert found.exit_status == 0


def test_30_steps_are_what_rules_on_a_course_need(tmp_path):
    assert max(instability.STEPS_LEAST, step_trend.STEPS_LEAST) == 30
    assert "29 recorded steps are too few" in repr(diagnose(write_run(tmp_path / "a", made_steps(29))))
    assert HEALTHY in repr(diagnose(write_run(tmp_path / "b", made_steps(30))))


def test_up_to_an_early_step_too_little_is_there(tmp_path):
    run = write_run(tmp_path / "run", made_steps(200))
    assert "12 recorded steps are too few" in repr(diagnose(run, step=12))
    assert HEALTHY in repr(diagnose(run, step=120))


def test_what_needs_no_course_is_found_in_two_steps(tmp_path):
    found = diagnose(write_run(tmp_path / "short", made_steps(2, loss=np.nan, loss_finite=False)))
    assert [f.cause for f in found.causes] == ["loss_not_finite"]
    assert "Beside that, 2 recorded steps are too few to judge training and speed: 30 are needed." in repr(found)
    assert "so the training itself is not judged" not in repr(found)
    assert found.exit_status == 1


def test_the_object_tells_it_within_the_schema(tmp_path):
    run = write_run(tmp_path / "short", made_steps(2))
    told = diagnose(run).to_dict()
    jsonschema.Draft202012Validator(diagnosis_schema()).validate(told)
    assert told["coverage"]["missing"][0] == {
        "table": "training_steps",
        "costs": "2 recorded steps are too few to judge training and speed: 30 are needed",
        "collect_with": "let the training run for 30 steps, and record each",
    }
    assert [m["table"] for m in told["coverage"]["missing"]].count("training_steps") == 1
    whole = diagnose(write_run(tmp_path / "long", made_steps(200))).to_dict()
    assert "training_steps" not in {m["table"] for m in whole["coverage"]["missing"]}


@pytest.mark.parametrize("loss", ["", "n/a", "None", "null", "-"])
def test_a_course_without_any_loss_is_not_called_healthy(tmp_path, loss):
    lines = [f"{step},{loss},0.0001,{100 + step % 3}" for step in range(1, 61)]
    (tmp_path / "train.csv").write_text("\n".join(["step,loss,lr,step_ms", *lines]))
    found = diagnose(tmp_path)
    assert NO_LOSS in repr(found)
    assert NO_LOSS in found._repr_html_()
    assert found.to_dict()["coverage"]["missing"][0]["collect_with"].startswith("let the training print or record")
    assert found.exit_status == 0


@pytest.mark.parametrize("loss", ["NaN", "nan", "inf", "-Infinity"])
def test_a_course_of_lost_losses_is_found_and_not_called_unrecorded(tmp_path, loss):
    lines = [f"{step},{loss},0.0001,{100 + step % 3}" for step in range(1, 61)]
    (tmp_path / "train.csv").write_text("\n".join(["step,loss,lr,step_ms", *lines]))
    found = diagnose(tmp_path)
    assert [f.cause for f in found.causes] == ["loss_not_finite"]
    assert found.causes[0].fix.startswith("Look at what step 1, the first recorded one, starts from")
    assert [e.fact for e in found.causes[0].evidence] == ["steps without a finite loss"]
    assert found.unrecorded == ("gradient norm",)


def test_with_a_profile_only_the_course_is_too_short():
    two = TRAINING_STEPS.check(made_steps(2).reindex(columns=TRAINING_STEPS.column_names))
    (gap,) = gaps(two, has_profile=True)
    assert gap.sentence == "2 recorded steps are too few to judge the course of the training: 30 are needed"
    assert gap.layers == ("stability",)
    assert gaps(two.assign(loss=np.nan, loss_finite=pd.NA), has_profile=True) == (NO_LOSS_GAP,)
    assert gaps(two.iloc[:0], has_profile=True) == gaps(None, has_profile=True) == ()


def test_the_verdict_on_two_steps_calls_nothing_good(tmp_path):
    run = open_run(write_run(tmp_path / "short", made_steps(2)), quiet=True)
    lines = verdict(diagnose(run), run_tables(run, ["training_steps"])).lines.set_index("layer")
    assert lines.word["stability"] == lines.word["efficiency"] == "not measured"
    assert lines.sentence["stability"].startswith("2 recorded steps are too few to judge training and speed")
