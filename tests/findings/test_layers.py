"""Findings on layers: what is said, and silence on healthy ones."""

from tests.analyses.test_layer_statistics import made, with_positions
from workbench.findings.layers import find_layer_drift, find_position_drift


def test_a_departing_layer_is_a_finding_with_its_numbers():
    (finding,) = find_layer_drift(made(factor=4.0))
    assert finding.cause == "layer_drift"
    assert finding.sub_cause == "layer_departs"
    assert finding.steps.first == 300
    assert "blocks.2.mlp_out" in finding.title
    assert "grew 4" in finding.title or "grew 3.9" in finding.title
    values = {e.fact: e.value for e in finding.evidence}
    assert values["layers"] == "blocks.2.mlp_out"
    (before,) = (v for fact, v in values.items() if fact.endswith(" before"))
    (now,) = (v for fact, v in values.items() if fact.endswith(" now"))
    assert now / before > 3


def test_late_positions_are_a_finding():
    (finding,) = find_position_drift(with_positions(3.0))
    assert finding.sub_cause == "late_positions"
    assert "From token 96 on" in finding.title


def test_healthy_layers_are_none():
    for seed in range(5):
        assert find_layer_drift(made(seed=seed)) == []
    assert find_position_drift(with_positions(1.0)) == []
    assert find_position_drift(made()) == []
