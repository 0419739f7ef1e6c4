"""Rules name the causes that they find. That they find no other is watched in all tests (tests/conftest.py)."""

import pytest

from workbench.findings.diagnosis import RULES
from workbench.findings.finding import CAUSES
from workbench.findings.playbooks import PLAYBOOKS
from workbench.findings.rule import Rule


def test_rules_name_causes_that_exist():
    assert {cause for rule in RULES for cause in rule.causes} <= set(CAUSES)
    assert all(rule.causes for rule in RULES)
    assert any(set(rule.causes) & set(PLAYBOOKS["T8"].causes) for rule in RULES)


@pytest.mark.parametrize(
    ("rule", "there", "runs"),
    [
        (Rule(causes=(), needs=("a",), uses=("b",), find=lambda _t: []), {"a"}, True),
        (Rule(causes=(), needs=("a",), uses=("b",), find=lambda _t: []), {"b"}, False),
        (Rule(causes=(), needs=(), needs_any=("a", "b"), find=lambda _t: []), {"b"}, True),
        (Rule(causes=(), needs=(), needs_any=("a", "b"), find=lambda _t: []), {"c"}, False),
    ],
)
def test_a_rule_runs_where_its_tables_are(rule, there, runs):
    assert rule.can_run(dict.fromkeys(there)) == runs
