import pandas as pd

from workbench.analyses.settings import changed_settings, setting, size_setting


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


def test_the_configuration_of_a_yaml_file_is_compared_too():
    before = settings(epsilon="1e-08", run_id="a").assign(source=["conf/Job.YAML", "run.json"])
    after = settings(epsilon="0.01", run_id="b").assign(source=["config.yml", "run.json"])
    assert changed_settings(before, after).to_dict("records") == [
        {"name": "epsilon", "before": "1e-08", "after": "0.01"}
    ]


def test_equal_settings_change_nothing():
    assert changed_settings(settings(mode="graph"), settings(mode="graph")).empty


def test_a_setting_is_found_by_the_last_part_of_its_name():
    found = settings(**{"context.max_device_memory": "58GB", "a.pp": "2", "b.pipeline_stage": "4", "note": "x GB"})
    assert setting(found, "pipeline_stage", "pp") == "4"
    assert setting(found, "tp") is None
    assert setting(None, "pp") is None
    assert size_setting(found, "max_device_memory") == 58 * 2**30
    assert size_setting(settings(size="512 MiB"), "size") == 512 * 2**20
    assert size_setting(found, "note") is None
