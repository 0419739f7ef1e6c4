"""What a user may give the Recorder: wrong words are told before the training starts."""

from argparse import Namespace

import numpy as np
import pytest

from workbench.errors import UnknownParameterError
from workbench.probes.recorder_options import batch_parts, evaluation_plan, first_shape, flat_config, step_range


@pytest.mark.parametrize(
    "evaluation",
    [
        "package.module:function",
        [1],
        {"arguments": {}},
        {"task": 5},
        {"task": "package.module"},
        {"task": ":function"},
        {"task": "__main__:task"},
        {"task": "package.module:function", "arguments": [1]},
    ],
)
def test_an_evaluation_that_no_process_can_run_is_refused(evaluation):
    with pytest.raises(UnknownParameterError, match="Fix: "):
        evaluation_plan(evaluation)


def test_an_evaluation_is_kept_as_given():
    plan = {"task": "package.module:function", "arguments": {"seed": 1}}
    assert evaluation_plan(plan) == plan
    assert evaluation_plan(None) is None


@pytest.mark.parametrize("steps", [(5,), (1, 2, 3), "20-25", (25, 20), (0, 3), (2.5, 3), ("1", "2"), 7])
def test_a_wrong_profile_window_is_refused(steps):
    with pytest.raises(UnknownParameterError, match="is not a range of steps"):
        step_range(steps)


def test_a_configuration_is_a_dictionary():
    assert step_range([20, 24]) == (20, 24)
    assert flat_config({"a": {"b": 1}}) == {"a.b": 1}
    with pytest.raises(UnknownParameterError, match="vars"):
        flat_config(Namespace(lr=1))


def test_a_batch_is_a_tuple_a_dictionary_or_one_column():
    tokens = np.zeros((4, 16))
    assert first_shape(batch_parts({"tokens": tokens, "mask": 1})) == (4, 16)
    assert first_shape(batch_parts((tokens, 1))) == first_shape(batch_parts(tokens)) == (4, 16)
    assert first_shape(batch_parts(["text"])) == first_shape(batch_parts(())) == ()
