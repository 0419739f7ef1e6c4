import pytest

from tests.analyses.pipeline_tables import batches, profiled
from tests.made_run import made_steps
from workbench.findings.data_pipeline import find_data_bottleneck
from workbench.findings.diagnosis import diagnose

SLOW_MAP = profiled(
    (0, "Batch", None, 0.0, 0.02, 1), (1, "Map", 0, 0.0, 0.05, 1), (2, "Generator", 1, 0.95, 0.05, 1)
)  # fmt: skip
STARVED = batches([30_000] * 20, step_us=10_000)
FED = batches([90_000, *[0] * 20], step_us=10_000)


def facts(finding):
    return {e.fact: e.value for e in finding.evidence}


def test_the_operator_is_the_culprit_with_its_queues():
    (finding,) = find_data_bottleneck({"data_ops": SLOW_MAP, "data_batches": STARVED})
    assert (finding.cause, finding.culprit.data_op, finding.severity) == ("data_starved", "Map", "critical")
    assert facts(finding)["queue in front of Map full"] == 0.95
    assert facts(finding)["queue behind Map full"] == 0.0
    assert facts(finding)["waiting for data"] == pytest.approx(0.75)
    assert finding.saves_us_per_step == pytest.approx(30_000)
    assert "num_parallel_workers of Map" in finding.fix
    assert "Generator" in finding.rules_out[0].because


def test_a_pipeline_that_keeps_up_is_silent():
    assert find_data_bottleneck({"data_ops": SLOW_MAP, "data_batches": FED}) == []


def test_the_recorder_s_wait_stands_above_the_profile_s():
    steps = made_steps(100)
    waits = steps.assign(data_wait_us=25_000.0, step_us=100_000.0)
    none = steps.assign(data_wait_us=100.0, step_us=100_000.0)
    (finding,) = find_data_bottleneck({"data_ops": SLOW_MAP, "data_batches": STARVED, "training_steps": waits})
    assert facts(finding)["waiting for data"] == pytest.approx(0.25)
    assert facts(finding)["waiting for batches, as the pipeline saw it"] == pytest.approx(0.75)
    assert finding.severity == "warning"
    assert find_data_bottleneck({"data_ops": SLOW_MAP, "data_batches": STARVED, "training_steps": none}) == []


def test_a_shuffle_that_refills_is_told_to_have_a_smaller_buffer():
    ops = profiled((0, "Batch", None, 0.4, 0.0, 1), (1, "Shuffle", 0, 0.0, 0.0, 1), (2, "Generator", 1, 0.0, 0.1, 1))
    waits = batches([0, *([120_000] + [0] * 15) * 4], step_us=10_000)
    (finding,) = find_data_bottleneck({"data_ops": ops, "data_batches": waits})
    assert finding.culprit.data_op == "Shuffle"
    assert "buffer smaller than the epoch" in finding.fix


def test_the_packaged_sample_names_its_map_in_the_diagnosis():
    causes = diagnose("data_samples/data_pipeline_starved").causes
    assert (causes[0].cause, causes[0].culprit.data_op) == ("data_starved", "Map")
