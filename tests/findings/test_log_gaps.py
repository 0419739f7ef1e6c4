import numpy as np
import pytest

import workbench as wb
from tests.log_text import write_logs
from tests.rendered_logs import mindformers, series, stamp

STAGES = "name,value\npipeline_stage,{0}\nvocab_size,32000\n"


def evaluation(seconds, took):
    return (
        f"{stamp(seconds)} - mindformers./output/log[mindformers/core/callback/callback.py:1966] - INFO - "
        f"Eval result: {{'PerplexityMetric': {{'loss': 9.1, 'PPL': 8955.0}}}}, eval time is {took} s.\n"
    )


def log(rank, *, last, steps=60, every=15, took=3.0, step_s=3.0, compile_s=150.0, explained=True, seed=0):
    """One rank of a pipeline-parallel job at its beginning, which evaluates every so many steps."""
    random = np.random.default_rng(seed + rank)
    step = np.arange(1, steps + 1)
    times = np.where(step == 1, compile_s, step_s * random.normal(1, 0.005, steps))
    loss = 8.5 + 1.9 * np.exp(-step / 30) if rank == last else 0.0
    norm = 2.5 + 40 * np.exp(-step / 12)
    frame = series(step, ms=times * 1e3, loss=loss, norm=norm, lr=2e-6 * (step - 1))
    pauses = took * ((step - 1) // every) if every else 0 * step
    frame["seconds"] = np.cumsum(times) + pauses
    text = ""
    for row in range(steps):
        text += mindformers(frame.iloc[[row]], planned=6500)
        if every and (row + 1) % every == 0 and explained:
            text += evaluation(frame["seconds"].iloc[row] + took, took)
    return text


def diagnose(folder, ranks=(0, 7), *, last=7, settings=True, **options):
    files = {f"worker_{r}.log": log(r, last=last, **options) for r in ranks}
    return wb.diagnose(write_logs(folder, files | ({"parallel.csv": STAGES.format(4)} if settings else {})))


def facts(found):
    return {e.fact: e.value for e in found.causes[0].evidence}


@pytest.mark.parametrize(
    ("ranks", "last", "options"),
    [((0, 7), 7, {}), ((0, 4, 8, 15), 15, {"every": 10, "took": 2.5, "compile_s": 600.0}), ((3, 2), 2, {"seed": 5})],
)
def test_what_alarms_in_a_healthy_pipeline_has_its_reasons(tmp_path, ranks, last, options):
    found = diagnose(tmp_path, ranks, last=last, **options)
    assert (found.exit_status, [f.cause for f in found.causes]) == (0, ["none"])
    told = facts(found)
    silent = ", ".join(str(r) for r in sorted(ranks) if r != last)
    assert told["ranks whose loss is 0 at every step (pipeline stages before the last)"] == silent
    assert told[f"loss of rank {last}, of the last stage, at first"] == pytest.approx(10.4, abs=0.1)
    assert told["ln(vocabulary), the loss of guessing"] == pytest.approx(10.373, abs=0.001)
    assert told["time of the first step, which holds the compilation"] == options.get("compile_s", 150.0)
    assert told["learning rate at the first step, where the warm-up begins"] == 0.0
    assert told["gradient norm at the first step, usual at random initialisation"] > 35
    took, every = options.get("took", 3.0), options.get("every", 15)
    count = 60 // every - 1  # no step line follows the last evaluation
    assert told["pauses that evaluation explains"] == count
    seconds = 59 * 3.0 + took * (count + 1)
    assert told["share of the time in evaluation"] == pytest.approx(took * (count + 1) / seconds, rel=0.05)


def test_logs_of_early_stages_only_say_which_log_is_missing(tmp_path):
    found = diagnose(tmp_path, ranks=(0, 1), every=0)
    assert (found.exit_status, [f.cause for f in found.causes]) == (0, ["none"])
    assert any(
        e.fact.startswith("not known: the loss; give the log of the last rank") for e in found.causes[0].evidence
    )


def test_the_same_pauses_without_a_reason_are_a_cause(tmp_path):
    found = diagnose(tmp_path, explained=False, took=8.0, every=10)
    assert [f.cause for f in found.causes if f.severity != "info"] == ["stall_steps"]
    assert found.causes[0].sub_cause == "pause_between_steps"
    assert facts(found)["time lost in them"] == pytest.approx(40, abs=1)  # 5 pauses of 8 s


def test_a_plain_healthy_log_has_nothing_to_explain(tmp_path):
    assert diagnose(tmp_path, ranks=(7,), settings=False, every=0).causes == ()


def test_the_harmless_stays_out_where_something_is_wrong(tmp_path):
    step = np.arange(1, 61)
    broken = mindformers(series(step, loss=np.where(step > 40, np.nan, 3.0), ms=3000.0), planned=90)
    found = wb.diagnose(write_logs(tmp_path, {"worker_1.log": broken, "worker_0.log": log(0, last=7)}))
    assert [f.cause for f in found.causes] == ["loss_not_finite"]
