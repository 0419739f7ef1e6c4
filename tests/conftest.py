"""Fixtures shared by all tests."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("ci", derandomize=True)  # the same examples in every CI run; new ones are sought at home
if os.environ.get("CI"):
    settings.load_profile("ci")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job: children would never see Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of real samples and cases beside the checkout; tests that need it are skipped elsewhere."""
    shared = REPOSITORY.parent / "shared"
    if not (shared / "samples").is_dir():
        pytest.skip("needs the sample collection beside the checkout")
    return shared


@pytest.fixture(scope="session")
def data_samples() -> Path:
    """The small samples that the project ships."""
    return REPOSITORY / "data_samples"


@pytest.fixture(scope="session", autouse=True)
def rules_find_what_they_name() -> None:
    """In all tests: a rule of the diagnosis returns no cause that it does not name."""
    from workbench.findings.diagnosis import RULES

    def watched(rule):
        find = rule.find

        def checked(tables):
            found = find(tables)
            assert {f.cause for f in found} <= set(rule.causes), rule
            return found

        return checked

    for rule in RULES:
        object.__setattr__(rule, "find", watched(rule))
