import numpy as np
import pytest

import workbench as wb
from tests.log_text import write_logs
from tests.rendered_logs import compiling, warning

LENGTHS = (512, 768, 1024, 384, 640, 896)


def job(
    folder, *, steps=60, lengths=LENGTHS, compile_s=15.0, step_s=0.5, seed=0, log=True, csv=True, dynamic=False, made=0
):
    """A training over random lengths that compiles for each new one; returns its causes and the steps that compiled."""
    random = np.random.default_rng(seed)
    order = random.choice(lengths, steps)
    order[0] = lengths[0]
    seen, text, rows, now, new = set(), "", [], 0.0, []
    for step, length in enumerate(order, 1):
        took = step_s * random.uniform(0.95, 1.1)
        if length not in seen and not (dynamic and seen):
            text += compiling(now, compile_s, counter=0 if made else len(seen), made=str(10**18 + made * len(seen)))
            now, took = now + compile_s, took + compile_s
            new.append(step)
        seen.add(length)
        now += step_s
        text += f"epoch: 1 step: {step}, loss is {3 - step / 100:.4f}\n"
        rows.append(f"{step},{length},{took:.3f}\n")
    files = {"worker_0.log": text} if log else {}
    if csv:
        files["lengths.csv"] = "step,seq_len,step_time_s\n" + "".join(rows)
    return wb.diagnose(write_logs(folder, files)), new


def fact(finding, start):
    return next(e.value for e in finding.evidence if e.fact.startswith(start))


@pytest.mark.parametrize(
    ("steps", "compile_s", "step_s", "lengths"),
    [(60, 15.0, 0.5, LENGTHS), (120, 4.0, 0.3, (100, 200, 300, 400)), (200, 60.0, 2.0, tuple(range(128, 1408, 128)))],
)
def test_compilations_for_new_lengths(tmp_path, steps, compile_s, step_s, lengths):
    found, new = job(tmp_path, steps=steps, compile_s=compile_s, step_s=step_s, lengths=lengths, seed=steps)
    first = found.causes[0]
    assert (first.cause, first.sub_cause, first.confidence) == ("recompile", "new_shapes", "high")
    assert [f.cause for f in found.causes if f.severity != "info"] == ["recompile"]
    assert first.steps.list == tuple(new[1:])
    assert fact(first, "compilations of one phase") == len(lengths)
    assert fact(first, "time spent compiling") == pytest.approx(compile_s * len(lengths), rel=0.01)
    assert fact(first, "distinct sequence lengths") == len(lengths)
    assert fact(first, "slow steps that are the first") == len(lengths)
    wall = compile_s * len(lengths) + 1.025 * step_s * steps
    assert fact(first, "compiling, share of the wall time") == pytest.approx(compile_s * len(lengths) / wall, rel=0.05)


def test_the_log_alone_and_the_lengths_alone(tmp_path):
    log, new = job(tmp_path / "log", csv=False)
    assert (log.causes[0].cause, log.causes[0].confidence) == ("recompile", "high")
    assert log.causes[0].steps.list == tuple(new[1:])
    csv, _ = job(tmp_path / "csv", log=False)
    assert (csv.causes[0].cause, csv.causes[0].confidence) == ("recompile", "medium")
    assert any("GLOG_v=1" in e.fact for e in csv.causes[0].evidence)


def test_a_function_that_is_made_again_needs_another_fix(tmp_path):
    found, _ = job(tmp_path, made=10**14)
    assert found.causes[0].sub_cause == "function_made_again"
    assert "outside of the loop" in found.causes[0].fix


def test_warnings_at_the_default_level(tmp_path):
    line = 'The function "g" at the file "train.py", line 16 has been compiled again. Try to reuse the function object'
    text = "".join(warning(10.0 * s, line, module="CORE") + f"epoch: 1 step: {s}, loss is 2.0\n" for s in range(1, 6))
    found = wb.diagnose(write_logs(tmp_path, {"worker_0.log": text})).causes[0]
    assert (found.cause, found.confidence, fact(found, "warnings of one rank")) == ("recompile", "medium", 5)
    assert fact(found, "compiled again per 100 steps") == 100.0


def warned_job(folder, warned, slow, *, steps=60):
    """A training of 0.5 s steps: a warning in front of the steps `warned`, and 20 s for the steps `slow`."""
    line = 'The function "g" at the file "train.py", line 16 has been compiled again. Try to reuse the function object'
    text, rows = "", ""
    for step in range(1, steps + 1):
        text += warning(10.0 * step, line, module="CORE") if step in warned else ""
        text += f"epoch: 1 step: {step}, loss is {3 - step / 100:.4f}\n"
        rows += f"{step},{20.0 if step in slow else 0.5}\n"
    return wb.diagnose(write_logs(folder, {"worker_0.log": text, "times.csv": "step,step_time_s\n" + rows})).causes


def test_slow_steps_behind_warnings_are_compilations_and_no_stalls_of_their_own(tmp_path):
    again = (9, 17, 30, 44, 51)
    first, *others = warned_job(tmp_path / "same", again, (1, *again))
    assert (first.cause, first.confidence, first.steps.list) == ("recompile", "high", again)
    assert first.severity == "critical"  # 5 x 19.5 s of 150 s
    assert fact(first, "slow steps right behind") == 5
    assert first.saves_us_per_step == pytest.approx(5 * 19.5e6 / 60)
    assert all(f.severity == "info" for f in others)
    elsewhere = warned_job(tmp_path / "others", again, (12, 25, 33, 40, 58))
    stalls = next(f for f in elsewhere if f.cause == "stall_steps")
    assert stalls.severity != "info"
    assert next(f for f in elsewhere if f.cause == "recompile").confidence == "medium"


def causes(folder, **files):
    return {f.cause for f in wb.diagnose(write_logs(folder, files)).causes}


def test_healthy_look_alikes(tmp_path):
    one_graph, _ = job(tmp_path / "dynamic", dynamic=True, compile_s=120.0)
    assert "recompile" not in {f.cause for f in one_graph.causes}
    two_functions = compiling(0, 60) + "epoch: 1 step: 1, loss is 2.0\n" + "".join(
        f"epoch: 1 step: {s}, loss is 2.0\n" for s in range(2, 30)
    ) + compiling(100, 20, function="Eval.construct", place="eval.py.12")  # fmt: skip
    assert causes(tmp_path / "two", **{"worker_0.log": two_functions}) <= {"none"}
    rows = [f"{s},{512 + 64 * (s % 7)},{20.0 if s % 25 == 0 else 0.5}\n" for s in range(1, 101)]
    periodic = "step,seq_len,step_time_s\n" + "".join(rows)  # stalls that do not depend on the length
    assert "recompile" not in causes(tmp_path / "periodic", **{"lengths.csv": periodic})
