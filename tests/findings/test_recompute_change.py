import pytest

import workbench as wb
from tests.findings.test_version_change import log
from tests.log_text import write_logs

ITEMS = "item,before,after\nrecompute_config.recompute,False,True\nseq_length,4096,4096\n"


def memory(peak_mb, limit_mb=58000):
    names = {"Device MOC memory size": 62420, "MindSpore Used memory size": limit_mb,
             "Used peak memory usage (without fragments)": peak_mb - 15,
             "Actual peak memory usage (with fragments)": peak_mb}  # fmt: skip
    head = "[INFO] DEVICE(1234,ffff,python):2026-01-01-12:00:00.000.000 [mindspore/ascend.cc:1] Finalize] "
    return "".join(f"{head if i == 0 else ''}{name}: {size}M\n" for i, (name, size) in enumerate(names.items()))


def causes(folder, before_peak=None, after_peak=None, *, items=ITEMS, before=1000, after=1250, extra=""):
    files = {
        "run_before.log": log(before) + (memory(before_peak) if before_peak else "") + extra,
        "run_after.log": log(after, seed=1, start=9e5) + (memory(after_peak) if after_peak else ""),
        "env.csv": items,
    }
    found = wb.diagnose(write_logs(folder, files)).causes
    return [f for f in found if f.cause in ("recompute_overhead", "version_regression")]


def fact(finding, start):
    return next(e.value for e in finding.evidence if e.fact.startswith(start))


def test_the_setting_its_cost_and_the_memory_it_saves(tmp_path):
    (found,) = causes(tmp_path, 40000, 20000)
    assert (found.cause, found.sub_cause) == ("recompute_overhead", "setting_changed")
    assert (found.severity, found.confidence) == ("critical", "high")  # 250 of 1000 ms
    assert found.saves_us_per_step == pytest.approx(250e3, rel=0.05)
    assert fact(found, "changed: recompute_config.recompute") == "False to True"
    assert fact(found, "highest memory of the earlier run") == pytest.approx(40000 / 1024)
    assert fact(found, "memory saved by recomputing") == pytest.approx(20000 / 1024)
    assert fact(found, "limit of the memory") == pytest.approx(58000 / 1024)
    assert "Go back to recompute_config.recompute False" in found.fix


def test_silent_where_the_earlier_run_was_nearly_full(tmp_path):
    assert causes(tmp_path, 53000, 20000) == []  # of 58,000: more than nine tenths


def test_without_a_limit_it_is_only_told(tmp_path):
    (found,) = causes(tmp_path)
    assert (found.cause, found.severity, found.confidence) == ("recompute_overhead", "info", "medium")
    assert len([e for e in found.evidence if e.fact.startswith("not known: ")]) == 2


def test_silent_where_an_allocation_failed(tmp_path):
    failed = "[ERROR] DEVICE(1234,ffff,python):2026-01-01-12:00:01.000.000 [mindspore/pool.cc:1] Out of Memory!!! "
    assert causes(tmp_path, 40000, 20000, extra=f"{failed}Request memory size: 1048576\n") == []


def test_a_small_cost_is_none(tmp_path):
    assert causes(tmp_path, 40000, 20000, after=1040) == []


def test_a_gain_is_no_cost(tmp_path):
    assert causes(tmp_path, 20000, 40000, before=1250, after=1000) == []


def test_other_changes_beside_it_leave_it_a_regression(tmp_path):
    more = ITEMS + "framework,2.5.0,2.6.0\n"
    (found,) = causes(tmp_path, 40000, 20000, items=more)
    assert found.cause == "version_regression"
