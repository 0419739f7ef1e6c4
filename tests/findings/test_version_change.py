import numpy as np
import pytest

import workbench as wb
from tests.log_text import write_logs
from tests.rendered_logs import megatron, mindformers, series

ITEMS = "item,before,after\nlibrary,{0},{1}\nframework,2.5.0,2.5.0\nseq_length,4096,4096\n"


def log(ms, *, writer=mindformers, noise=0.004, seed=0, steps=60, start=0.0, loss=3.0):
    random = np.random.default_rng(seed)
    step = np.arange(1, steps + 1)
    times = ms * random.normal(1, noise, steps)
    frame = series(step, ms=times, loss=loss - step / 100, norm=1.3)
    return writer(frame.assign(seconds=frame["seconds"] + start), planned=2000)


def table(**totals):
    head = "Device_id,OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)\n"
    return head + "".join(f"0,{op},AI_CORE,10,{us},1,2,3,5\n" for op, us in totals.items())


def causes(folder, **files):
    found = wb.diagnose(write_logs(folder, {k.replace("__", "."): v for k, v in files.items()}))
    return [f for f in found.causes if f.cause == "version_regression"]


def fact(finding, start):
    return next(e.value for e in finding.evidence if e.fact.startswith(start))


@pytest.mark.parametrize("writer", [mindformers, megatron])
@pytest.mark.parametrize(("before", "after"), [(5000, 6500), (800, 860), (120, 300)])
def test_a_slower_later_run_with_one_changed_version(tmp_path, writer, before, after):
    files = {
        "run_before__log": log(before, writer=writer),
        "run_after__log": log(after, writer=writer, seed=1, start=9e5),
        "env__csv": ITEMS.format("4.1.0", "4.2.0"),
    }
    (found,) = causes(tmp_path, **files)
    assert (found.confidence, found.severity) == ("high", "critical" if after > 1.2 * before else "warning")
    assert fact(found, "change of the throughput") == pytest.approx(before / after - 1, abs=0.005)
    assert fact(found, "changed: library") == "4.1.0 to 4.2.0"
    assert fact(found, "settings that did not change") == 2
    assert found.saves_us_per_step == pytest.approx((after - before) * 1e3, rel=0.1)
    assert any(e.fact.startswith("not known: the operators") for e in found.evidence)


def test_operators_tell_where_the_time_went(tmp_path):
    found = causes(
        tmp_path,
        new__log=log(1500, seed=1, start=9e5), old__log=log(1000), env__csv=ITEMS.format("1.0.1", "1.1.0"),
        ops_old__csv=table(MatMul=500e3, FlashAttentionScore=100e3, Add=50e3),
        ops_new__csv=table(MatMul=501e3, BatchMatMul=300e3, SoftmaxV2=300e3, Add=50e3),
    )[0]  # fmt: skip
    assert found.sub_cause == "attention_left_fused_kernel"
    assert fact(found, "operators that are gone: FlashAttentionScore") == 100e3
    assert fact(found, "operators that are new: BatchMatMul, SoftmaxV2") == 600e3
    assert fact(found, "of the longer step") == pytest.approx(1.0, abs=0.02)  # 500 ms of 500 ms
    assert fact(found, "largest change of the 2 other types") == pytest.approx(0.002)
    assert "Pin library 1.0.1" in found.fix


def test_profiles_whose_names_tell_nothing_are_told_by_their_length(tmp_path):
    files = {"monday__log": log(1000), "friday__log": log(1500, seed=1, start=9e5)}
    profiles = {
        "x__csv": table(MatMul=5e5, BatchMatMul=4e5, SoftmaxV2=2e5),
        "y__csv": table(MatMul=5e5, FlashAttention=1e5),
    }
    found = causes(tmp_path, **files, **profiles, env__csv=ITEMS.format("1.0.1", "1.1.0"))[0]
    assert found.sub_cause == "attention_left_fused_kernel"
    assert fact(found, "operators that are new: BatchMatMul, SoftmaxV2") == 6e5


def test_other_replaced_and_slower_operators(tmp_path):
    logs = {"old__log": log(1000), "new__log": log(1300, seed=1, start=9e5), "env__csv": ITEMS.format("1.0.1", "1.1.0")}
    replaced = causes(tmp_path / "a", **logs, ops_old__csv=table(A=1e5, RmsNorm=5e4),
                      ops_new__csv=table(A=1e5, Mul=2e5, Add=1e5))[0]  # fmt: skip
    assert replaced.sub_cause == "operators_replaced"
    same = causes(tmp_path / "b", **logs, ops_old__csv=table(A=1e5, B=1e5), ops_new__csv=table(A=4e5, B=1e5))[0]
    assert same.sub_cause == "operators_slower"


def test_less_sure_where_more_changed_or_nothing_tells(tmp_path):
    logs = {"a_before__log": log(1000), "a_after__log": log(1300, seed=1, start=9e5)}
    two = "item,before,after\nlibrary,1.0.1,1.1.0\ndriver,24.1.0,25.0.1\n"
    assert causes(tmp_path / "two", **logs, env__csv=two)[0].confidence == "medium"
    unknown = causes(tmp_path / "unknown", **logs)[0]
    assert unknown.confidence == "medium"
    assert any(e.fact.startswith("not known: what changed") for e in unknown.evidence)
    setting = causes(tmp_path / "setting", **logs, env__csv="item,before,after\njit_level,O1,O0\n")[0]
    assert (setting.confidence, setting.severity, setting.sub_cause) == ("low", "info", "setting_changed")
    losses = {**logs, "a_after__log": log(1300, seed=1, start=9e5, loss=6.0)}
    assert causes(tmp_path / "loss", **losses, env__csv=ITEMS.format("1.0.1", "1.1.0"))[0].confidence == "medium"


def test_runs_in_folders_with_settings_of_their_own(tmp_path):
    files = {
        "v1/train.log": log(1000), "v2/train.log": log(1400, seed=1, start=9e5),
        "v1/env.yaml": "mindspore: 2.5.0\nlayers: 40\n", "v2/env.yaml": "mindspore: 2.6.0\nlayers: 40\n",
    }  # fmt: skip
    (found,) = causes(tmp_path, **files)
    assert (found.confidence, fact(found, "changed: mindspore")) == ("high", "2.5.0 to 2.6.0")


@pytest.mark.parametrize(("before", "after", "noise"), [(1000, 1000, 0.004), (1000, 1020, 0.004), (1000, 1060, 0.15),
                                                       (1300, 1000, 0.004)])  # fmt: skip
@pytest.mark.parametrize("seed", [1, 2])
def test_noise_and_gains_are_no_regression(tmp_path, before, after, noise, seed):
    files = {"a_before__log": log(before, noise=noise), "a_after__log": log(after, noise=noise, seed=seed, start=9e5)}
    assert causes(tmp_path, **files, env__csv=ITEMS.format("4.1.0", "4.2.0")) == []


def test_another_batch_is_another_job(tmp_path):
    batch = "item,before,after\nglobal_batch_size,64,128\nlibrary,1.0.1,1.1.0\n"
    files = {"a_before__log": log(1000), "a_after__log": log(1900, seed=1, start=9e5), "env__csv": batch}
    assert causes(tmp_path, **files) == []


def test_runs_that_state_their_throughput_only(tmp_path):
    def course(tokens_per_s):
        rows = [f"{i},3.0,{tokens_per_s * (1 + 0.002 * (i % 3 - 1)):.1f}" for i in range(1, 61)]
        return "step,loss,tokens_per_s\n" + "\n".join(rows) + "\n"

    files = {"before__csv": course(20_000), "after__csv": course(16_000), "env__csv": ITEMS.format("1.0.1", "1.1.0")}
    (found,) = causes(tmp_path, **files)
    assert fact(found, "change of the throughput") == pytest.approx(-0.2)  # 16,000 of 20,000
    assert fact(found, "longer token") == pytest.approx(12.5, rel=0.01)  # 1e6 / 16,000 - 1e6 / 20,000 us
    assert found.saves_us_per_step is None
    assert "50 to 62.5 us per token" in found.title
