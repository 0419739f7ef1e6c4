"""RuntimeProfilerSummary of a real CPU run. Expected values are read in the raw file by eye."""

import pytest

from tests.readers.profiles import notes_text, read, read_text

SAMPLE = "cpu_profile/RuntimeProfilerSummary1795968112863393439.csv"


def test_steps(data_samples):
    steps, notes = read(data_samples / SAMPLE, "runtime_profiler", rank_id=1)["training_steps"]
    assert steps.step.tolist() == [1, 2, 3, 4, 5]
    assert steps.step_us.tolist()[:3] == [389621.437, 3547.728, 3108.955]
    assert steps.compiled[0]  # 335 of 390 ms in Python
    assert steps.compiled[1:].isna().all()
    assert notes == []


def test_modules_events_and_stages(data_samples):
    ops = read(data_samples / SAMPLE, "runtime_profiler")["host_ops"].table
    rows = ops.set_index(["step", "level", "name"])
    assert rows.total_us[1, "module", "Kernel"] == pytest.approx(41386.830)
    assert rows["count"][1, "event", "Kernel.KernelLaunch"] == 22
    assert rows.avg_us[2, "event", "Kernel.KernelLaunch"] == pytest.approx(14.11823, rel=1e-5)
    assert rows.total_us[1, "inner event", "RuntimeFramework.BackendGraphRunInner"] == pytest.approx(53307.114)
    assert rows.total_us[2, "stage", "RunGraph"] == pytest.approx(3075.756)


def test_events_of_a_module_add_up_to_it(data_samples):
    ops = read(data_samples / SAMPLE, "runtime_profiler")["host_ops"].table
    events = ops[ops.level == "event"].assign(module=lambda t: t["name"].str.split(".").str[0])
    sums = events[events.module == "Kernel"].groupby("step").total_us.sum()
    modules = ops[(ops.level == "module") & (ops["name"] == "Kernel")].set_index("step").total_us
    assert sums.to_numpy() == pytest.approx(modules.to_numpy(), rel=1e-6)


def test_torn_file_keeps_what_is_whole(data_samples, tmp_path):
    text = (data_samples / SAMPLE).read_text()
    cut = text[: text.index("[Step:3") + 20]
    readings = read_text(tmp_path, "RuntimeProfilerSummary1.csv", cut, "runtime_profiler")
    assert readings["training_steps"].table.step.tolist() == [1, 2]
    assert "ends inside" in notes_text(readings["training_steps"])
