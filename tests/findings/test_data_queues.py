"""Logs rendered by the forms of MindSpore's writers, with other numbers each time."""

import pytest

from workbench.findings.data_queues import find_starved_queue
from workbench.findings.step_time import find_data_starved
from workbench.run import open_run

PREFIX = (
    "[{level}] MD(20417,ffff7a2e11e0,python):2025-03-04-11:{minute:02d}:{second:02d}.482.913 [data_queue_op.cc:1] F] "
)
WARNINGS = {
    "first": "Bad performance attention, it waits more than 25 seconds and unable to fetch first Batch of data from "
    "dataset pipeline, which might result `GetNext` timeout problem.",
    "batch": "Bad performance attention, it takes more than 25 seconds to fetch a batch of data from dataset pipeline, "
    "which might result `GetNext` timeout problem.",
    "generator": "Bad performance attention, it takes more than 25 seconds to generator.__next__ new row, which might "
    "cause `GetNext` timeout problem when sink_mode=True.",
}


def warnings(*kinds):
    return [PREFIX.format(level="WARNING", minute=i, second=5) + WARNINGS[kind] for i, kind in enumerate(kinds)]


def epochs(step_ms, data_ms, count=4):
    lines = []
    for epoch in range(1, count + 1):
        lines.append(f"epoch: {epoch} step: 50, loss is {6.0 - epoch / 3}")
        lines.append(
            f"Train epoch time: {50 * step_ms:.3f} ms, per step time: {step_ms:.3f} ms (data time: {data_ms:.3f} ms)"
        )
    return lines


def channel(host, device, *, push_ms=4, gap_ms=900):
    pushes, at_ms = [], 0
    for _ in range(5):
        start, at_ms = at_ms, at_ms + push_ms
        pushes.append(" -> ".join(f"2025-03-04-11:40:{t // 1000:02d}.{t % 1000:03d}.000" for t in (start, at_ms)))
        at_ms += gap_ms
    return [
        PREFIX.format(level="INFO", minute=41, second=0).replace("F] ", "~DataQueueOp] "),
        "channel_name: 11111111-4b55-11f0-9a3e-1c2b3d4e5f60;",
        "have_sent: 200;",
        f"host_queue: {', '.join(map(str, host))};",
        f"device_queue: {', '.join(map(str, device))};",
        "      push_first_start_time -> push_first_end_time",
        "2025-03-04-11:00:42.480.113 -> 2025-03-04-11:00:42.483.901",
        "            push_start_time -> push_end_time",
        *pushes,
    ]


def found(tmp_path, *parts):
    path = tmp_path / "train.log"
    path.write_text("\n".join(line for part in parts for line in part) + "\n")
    run = open_run(path, quiet=True)
    return find_starved_queue({name: run.table(name) for name in run.tables})


def facts(finding):
    return {e.fact: e.value for e in finding.evidence}


def test_empty_queues_slow_generator_and_data_time(tmp_path):
    log = (
        warnings("first", "generator", "batch", "generator"),
        epochs(1200, 1020),
        channel([0] * 10, [0] * 8 + [1, 0]),
    )
    (finding,) = found(tmp_path, *log)
    assert (finding.cause, finding.severity, finding.confidence) == ("data_starved", "critical", "high")
    said = facts(finding)
    assert said["device queue empty, of 10 samples"] == pytest.approx(0.9)
    assert said["host queue empty, of 10 samples"] == 1.0
    assert said["data time share of the typical step"] == pytest.approx(1020 / 1200)
    assert said["slow-data warnings: generator, above 25 s"] == 2
    assert said["push to the device, median"] == pytest.approx(4000)
    assert said["gap between pushes, median"] == pytest.approx(900_000)
    assert finding.culprit.data_op == "Generator"
    assert "num_parallel_workers" in finding.fix
    assert "MindRecord" in finding.fix
    assert {r.cause for r in finding.rules_out} >= {"exposed_communication", "small_ops", "slow_transfer"}


def test_a_full_host_queue_in_front_of_an_empty_device_queue_is_the_transfer(tmp_path):
    (finding,) = found(
        tmp_path, epochs(900, 400), channel([14, 16, 16, 15, 16], [0, 0, 0, 1, 0], push_ms=800, gap_ms=5)
    )
    assert finding.fix.startswith("Look at what slows the copy")
    assert facts(finding)["push to the device, median"] == pytest.approx(800_000)
    assert "slow_transfer" not in {r.cause for r in finding.rules_out}


@pytest.mark.parametrize("kinds", [("first",), ("first", "batch", "batch", "batch")])
def test_a_fed_device_queue_is_silent_whatever_was_slow_at_first(tmp_path, kinds):
    assert found(tmp_path, warnings(*kinds), epochs(800, 2), channel([9, 0, 3, 8, 2], [98, 100, 97, 100, 99])) == []


def test_a_cold_start_alone_is_silent(tmp_path):
    assert found(tmp_path, warnings("first", "batch"), epochs(800, 2)) == []


def test_many_warnings_without_queues_are_starvation_of_medium_confidence(tmp_path):
    (finding,) = found(tmp_path, warnings("first", "batch", "batch", "batch"))
    assert (finding.severity, finding.confidence) == ("warning", "medium")
    assert finding.culprit.data_op is None


def test_the_old_summary_knows_the_host_s_queue_only(tmp_path):
    old = ["preprocess_batch: 49; batch_queue: 0, 0, 0, 0, 0, 0, 0, 0, 0, 64; push_start_time: ; push_end_time: ;"]
    (finding,) = found(tmp_path, warnings("batch", "batch", "batch"), epochs(700, 500), old)
    assert facts(finding)["host queue empty, of 10 samples"] == pytest.approx(0.9)
    assert found(tmp_path, epochs(700, 5), old) == []


def test_autotune_tells_the_queue_to_the_device(tmp_path):
    line = "Device Connector Size: 0.4, Connector Capacity: 16, Utilization: 2.5%, Empty Freq: {}%"
    (finding,) = found(tmp_path, epochs(700, 300), [line.format(84.6), line.format(80.4)])
    assert facts(finding)["queue to the device empty, by AutoTune"] == pytest.approx(0.825)
    assert found(tmp_path, epochs(700, 3), [line.format(3.0)]) == []


def test_time_outs_are_critical_and_what_follows_from_a_collective_is_not_blamed_on_data(tmp_path):
    lost = [
        "[ERROR] MD(1,2,python):2025-03-04-11:00:42.480.113 [x.cc:1] F] For 'GetNext', get data timeout. Queue name: a"
    ]
    (finding,) = found(tmp_path, lost)
    assert finding.severity == "critical"
    collective = ["EI0002: 2025-03-04-11:00:41 The wait execution of the Notify register times out. remote rank [3]"]
    assert found(tmp_path, collective, lost) == []


def test_data_time_beside_a_filled_device_queue_is_no_wait(tmp_path):
    beside = epochs(700, 560)  # sink mode: the host fetches for 560 ms while the device computes for 700
    (tmp_path / "train.log").write_text("\n".join([*beside, *channel([3] * 10, [98] * 9 + [0])]) + "\n")
    run = open_run(tmp_path, quiet=True)
    assert find_data_starved(run.table("training_steps"), run.table("log_messages")) == []
    assert len(find_data_starved(run.table("training_steps"))) == 1
