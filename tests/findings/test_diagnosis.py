import json
import math

import jsonschema
import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.made_run import made_samples, made_steps, write_run
from workbench.errors import UnknownParameterError
from workbench.findings import diagnosis
from workbench.findings.diagnosis import Diagnosis, diagnose, diagnosis_schema, ranked, run_tables
from workbench.findings.finding import CAUSES, Evidence, Finding
from workbench.findings.rule import Rule
from workbench.findings.verdict import LAYER_OF_CAUSE, verdict

SAMPLES = pd.concat([made_samples("c-100", 100), made_samples("c-200", 200, better=0.3)])
TABLES = ["training_steps", "parameter_groups", "events", "eval_samples"]


@pytest.fixture
def healthy(tmp_path):
    return write_run(tmp_path / "healthy", made_steps(200), samples=SAMPLES)


@pytest.fixture
def faulty(tmp_path):
    steps = made_steps(200)
    steps["data_wait_us"] = 30_000.0
    steps["step_us"] += 30_000
    steps.loc[150:, "loss"] = np.nan
    worse = pd.concat([SAMPLES, made_samples("c-150", 150, better=0.13, worse=["code"])])
    return write_run(tmp_path / "faulty", steps, samples=worse[worse.checkpoint != "c-200"])


def test_a_healthy_run_has_no_cause(healthy):
    found = diagnose(healthy)
    assert found.causes == ()
    assert found.exit_status == 0
    assert "healthy" in repr(found)
    assert "healthy" in found._repr_html_()


def test_what_is_not_recorded_is_said_beside_healthy(tmp_path):
    steps = made_steps(200)
    steps = steps.drop(columns=["loss", "loss_finite", "gradient_norm"], errors="ignore")
    steps.loc[::4, "step_us"] = 0.0
    found = diagnose(write_run(tmp_path / "blind", steps))
    assert found.causes == ()
    assert "Not recorded, so not judged: loss, gradient norm, 50 step times of zero or less." in repr(found)


def test_a_run_without_steps_is_not_called_healthy(tmp_path):
    run = write_run(tmp_path / "run", made_steps(20), events=[{"kind": "end", "start_ns": 1, "rank_id": 0}])
    (run / "metrics" / "rank_0.jsonl").write_text("")
    found = diagnose(run)
    assert found.coverage["tables"] == ["events"]
    assert "Nothing could be checked" in repr(found)
    assert found.exit_status == 2


def test_a_faulty_run_is_ranked_and_shown(faulty):
    found = diagnose(faulty)
    assert [f.cause for f in found.causes] == ["loss_not_finite", "data_starved", "subset_regression"]
    assert found.causes[0].severity == "critical"
    assert found.exit_status == 1
    assert "The loss is not a number from step 151" in found._repr_html_()


def test_up_to_a_step_or_checkpoint(faulty):
    assert "loss_not_finite" not in {f.cause for f in diagnose(faulty, step=120).causes}
    early = diagnose(faulty, checkpoint="c-100")
    assert {f.cause for f in early.causes} == {"data_starved"}


def test_up_to_a_checkpoint_that_was_saved_but_not_evaluated(tmp_path):
    saved = [
        {"kind": "checkpoint", "start_ns": n, "step": n, "name": f"net-1_{n}.ckpt", "rank_id": 0}
        for n in (50, 100, 150)
    ]
    run = write_run(tmp_path / "run", made_steps(200), events=saved)
    assert diagnose(run, checkpoint="net-1_100").coverage["steps"] == [1, 100]


def test_a_checkpoint_or_step_that_is_not_there_is_an_error(faulty, tmp_path):
    with pytest.raises(UnknownParameterError, match=r"no checkpoint 'unknown'[^$]*use one of c-100, c-150"):
        diagnose(faulty, checkpoint="unknown")
    with pytest.raises(UnknownParameterError, match=r"no step up to -5[^$]*use a step from 1 to 200"):
        diagnose(faulty, step=-5)
    (tmp_path / "my.yaml").write_text("learning_rate: 0.001\n")
    with pytest.raises(UnknownParameterError, match="no training steps"):
        diagnose(tmp_path / "my.yaml", step=5)


def test_a_verdict_rests_only_on_tables_that_a_rule_looked_at(tmp_path, healthy):
    assert "parameter_groups" in wb.open_run(healthy, quiet=True).tables  # which no rule takes
    assert diagnose(healthy).coverage["tables"] == ["training_steps", "evals", "eval_samples", "settings"]
    (tmp_path / "my.yaml").write_text("learning_rate: 0.001\n")
    found = diagnose(tmp_path / "my.yaml")
    assert (found.coverage["tables"], found.causes) == ([], ())
    assert "Nothing could be checked" in repr(found)


def test_the_object_is_as_the_design_says_and_is_json(faulty):
    found = diagnose(faulty).to_dict()
    assert list(found) == ["schema", "run", "coverage", "causes"]
    assert list(found["coverage"]) == ["ranks", "steps", "tables", "missing"]
    assert list(found["causes"][0]) == list(diagnosis.CAUSE_FIELDS)
    assert list(found["causes"][0]["culprit"]) == ["rank", "op", "link", "subset", "data_op", "stage"]
    assert list(found["causes"][0]["steps"]) == ["first", "last", "list"]
    assert list(found["causes"][0]["evidence"][0]) == ["fact", "value", "unit", "table", "where"]
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_the_object_fits_the_published_schema(healthy, faulty):
    validator = jsonschema.Draft202012Validator(diagnosis_schema())
    validator.check_schema(diagnosis_schema())
    good, bad = diagnose(healthy), diagnose(faulty)
    for found in (good, bad, Diagnosis("r", good.coverage, (finding(),))):
        validator.validate(found.to_dict())
    broken = bad.to_dict()
    broken["causes"][0]["culprit"]["host"] = "a"
    assert not validator.is_valid(broken)
    assert not validator.is_valid(good.to_dict() | {"more": 1})


def finding(**values):
    words = {"cause": "stall_steps", "playbook": "T7", "severity": "warning", "confidence": "high"}
    return Finding(**{**words, "title": "t", "fix": "f", "source": "s", **values})


def test_rank_is_severity_then_gain_then_confidence():
    order = [
        finding(severity="critical"),
        finding(severity="critical", saves_us_per_step=99.0),
        finding(cause="bad_batch"),
        finding(saves_us_per_step=20.0),
        finding(saves_us_per_step=10.0),
        finding(confidence="medium"),
        finding(severity="info", saves_us_per_step=99.0),
    ]
    assert ranked(order[::-1]) == order


def test_numbers_that_are_not_finite_become_null():
    broken = finding(evidence=(Evidence(fact="x", value=math.nan), Evidence(fact="y", value=np.int64(3))))
    causes = Diagnosis("r", {"ranks": [], "steps": [], "tables": [], "missing": []}, (broken,)).to_dict()["causes"]
    assert [e["value"] for e in causes[0]["evidence"]] == [None, 3]


def test_titles_are_escaped():
    shown = Diagnosis(
        "r", {"ranks": [], "steps": [], "tables": ["x"], "missing": []}, (finding(title="<script>alert(1)</script>"),)
    )._repr_html_()
    assert "<script>" not in shown


def lines_of(path):
    run = wb.open_run(path, quiet=True)
    return verdict(diagnose(run), run_tables(run, TABLES)).lines


def test_verdict_has_a_line_per_layer(healthy, faulty):
    good, bad = lines_of(healthy), lines_of(faulty)
    assert good.layer.tolist() == ["quality", "stability", "efficiency"]
    assert good.word.tolist() == ["good", "good", "good"]
    assert "perplexity" in good.sentence[0]
    assert bad.word.tolist() == ["attention", "bad", "attention"]
    assert "not a number" in bad.sentence[1]


def test_verdict_of_a_run_without_tables():
    lines = verdict(Diagnosis("r", {"ranks": [], "steps": [], "tables": [], "missing": []}, ()), {}).lines
    assert set(lines.word) == {"not measured"}


def test_layers_name_known_causes():
    assert set(LAYER_OF_CAUSE) <= set(CAUSES)


def test_a_rule_is_not_asked_about_a_table_that_only_the_earlier_job_has(monkeypatch, healthy):
    """Files of two jobs in one folder: what the last one has no rows of is not there for rules on the last one."""
    last = [
        Rule(causes=("none",), needs=("eval_samples",), find=lambda t: [finding(title=t["eval_samples"].columns[0])])
    ]
    monkeypatch.setattr("workbench.findings.diagnosis.RULES", last)
    monkeypatch.setattr(
        "workbench.findings.diagnosis.of_last_run", lambda t: {n: v for n, v in t.items() if n != "eval_samples"}
    )
    assert diagnose(healthy).causes == ()
    monkeypatch.setattr("workbench.findings.diagnosis.of_last_run", dict)
    assert [f.cause for f in diagnose(healthy).causes] == ["stall_steps"]


def test_a_healthy_profile_is_fast_without_recorded_steps():
    for tables, word in ((["step_time", "kernels"], "good"), (["settings"], "not measured")):
        coverage = {"ranks": [0], "steps": [1, 40], "tables": tables, "missing": []}
        lines = verdict(Diagnosis("r", coverage, ()), {}).lines.set_index("layer")
        assert lines.word.to_dict() == {"quality": "not measured", "stability": "not measured", "efficiency": word}
