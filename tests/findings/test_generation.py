"""Findings on generated texts: absolute limits, rises between checkpoints, silence on fine texts."""

import pandas as pd

from workbench.findings.generation import find_degenerate_output

FINE = ["It rained all day.", "The cat sat on the mat.", "We went home early, and slept.", "Nobody knew why (yet)."]


def texts(outputs, *, checkpoint="c-1", step=1, subset="english"):
    rows = [{"sample_id": str(k), "prompt": f"Tell me about {k}.", "output": o} for k, o in enumerate(outputs)]
    return pd.DataFrame(rows).assign(checkpoint=checkpoint, step=step, subset=subset, finish_reason="stop")


def test_fine_texts_are_silent():
    assert find_degenerate_output(texts(FINE * 20)) == []


def test_loops_are_named_with_rate_subset_and_examples():
    looping = ["I think that " + "I think that " * 10] * 12
    table = pd.concat([texts(FINE * 10 + looping), texts(FINE * 10, subset="other")])
    (finding,) = find_degenerate_output(table)
    assert (finding.cause, finding.sub_cause) == ("degenerate_output", "repetition")
    assert finding.culprit.subset == "english"
    assert "23%" in finding.title  # 12 of 52
    assert any("I think that" in str(e.value) for e in finding.evidence)


def test_an_ability_counts_only_when_it_gets_worse():
    right = [f"{k} + 1 = {k + 1}\n" for k in range(60)]
    half = [f"{k} + 1 = {k + 1 + k % 2}\n" for k in range(60)]
    bad_from_the_start = texts(half, subset="sums")
    assert find_degenerate_output(bad_from_the_start) == []
    (finding,) = find_degenerate_output(
        pd.concat([texts(right, subset="sums"), texts(half, checkpoint="c-2", step=2, subset="sums")])
    )
    assert finding.sub_cause == "wrong_arithmetic"
    assert finding.steps.first == 2
    assert "50%" in finding.title
    assert "0% at c-1" in finding.title


def test_models_without_steps_are_judged_one_by_one():
    table = pd.concat([texts([""] * 30, checkpoint="m1"), texts(FINE * 8, checkpoint="m2")]).assign(step=pd.NA)
    (finding,) = find_degenerate_output(table)
    assert finding.severity == "critical"
    assert "m1" in finding.title
