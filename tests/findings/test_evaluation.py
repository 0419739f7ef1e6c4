import pandas as pd

from tests.made_run import made_samples
from workbench.findings.evaluation import find_checkpoint_without_loss, find_subset_regression
from workbench.tables import EVAL_SAMPLES


def history(*parts):
    return pd.concat([made_samples(f"c-{i}", i, **part) for i, part in enumerate(parts, 1)])


def test_a_subset_that_got_worse_while_the_whole_got_better():
    found = find_subset_regression(history({}, {"better": 0.1, "worse": ["code"]}))
    assert [f.culprit.subset for f in found] == ["code"]
    assert found[0].severity == "critical" if found[0].evidence[0].value >= 0.1 else "warning"
    assert found[0].steps.first == 2
    assert "against previous, also the best: c-1" in found[0].title


def test_improving_and_equal_checkpoints_find_nothing():
    assert find_subset_regression(history({}, {"better": 0.1}, {"better": 0.2})) == []
    alarms = [
        find_subset_regression(pd.concat([made_samples("a", 1, seed=s), made_samples("b", 2, seed=s)]))
        for s in range(40)
    ]
    assert sum(map(len, alarms)) == 0  # differences of single samples are noise, and below 0.01 nats


def test_slow_decline_shows_against_the_best():
    found = find_subset_regression(history({"better": 0.05}, {"better": 0.03}, {"better": 0.024}))
    assert found
    assert "best before: c-1" in found[0].title


def test_a_checkpoint_without_a_loss():
    samples = history({}, {})
    broken = samples.assign(
        loss_nats=samples.loss_nats.mask((samples.checkpoint == "c-2") & (samples.subset == "code"))
    )
    assert "no finite loss on 1 subset(s): code" in find_checkpoint_without_loss(broken)[0].title
    assert find_checkpoint_without_loss(samples) == []
    assert find_checkpoint_without_loss(EVAL_SAMPLES.empty()) == []
    assert find_subset_regression(EVAL_SAMPLES.empty()) == []
