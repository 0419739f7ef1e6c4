import pandas as pd

from workbench.analyses.settings import changed_settings


def settings(**values):
    return pd.DataFrame({"name": list(values), "value": list(values.values())})


def test_only_what_decides_results_is_compared_and_configuration_comes_first():
    before = settings(**{"versions.mindspore": "2.9.0", "config.lr": "0.001", "run_id": "a", "config.batch": "8"})
    after = settings(**{"versions.mindspore": "2.10.0", "config.lr": "0.002", "run_id": "b", "config.batch": "8",
                        "config.clip": "1.0"})  # fmt: skip
    changed = changed_settings(before, after)
    assert changed.name.tolist() == ["config.clip", "config.lr", "versions.mindspore"]
    assert changed.before.isna().tolist() == [True, False, False]
    assert changed.after.tolist() == ["1.0", "0.002", "2.10.0"]


def test_equal_settings_change_nothing():
    assert changed_settings(settings(mode="graph"), settings(mode="graph")).empty
