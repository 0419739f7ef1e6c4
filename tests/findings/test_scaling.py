import pandas as pd
import pytest

import workbench as wb
from tests.job_logs import megatron_job, mindformers_job, nccl_start
from tests.log_text import read_text
from workbench.analyses.scaling_logs import logged_points, logged_runs
from workbench.findings.log_network import find_no_rdma_fallback
from workbench.findings.scaling import find_poor_scaling, find_scaling_causes
from workbench.tables import LOG_MESSAGES, TRAINING_STEPS


def tables(folder, **logs):
    """Tables of several logs together, as a run has them; `a__b` is the log b.log in the folder a."""
    found = {}
    for name, lines in logs.items():
        place = name.replace("__", "/") + ".log"
        for table, reading in read_text(folder, "\n".join(lines) + "\n", place).items():
            found.setdefault(table, []).append(reading.table.assign(**_source(table, place)))
    return {name: pd.concat(parts, ignore_index=True) for name, parts in found.items()}


def _source(table, place):
    column = {"training_steps": "source", "settings": "source"}.get(table, "file")
    return {column: place}


def value(finding, start):
    return next(e.value for e in finding.evidence if e.fact.startswith(start))


SOCKETS = (*nccl_start("a", reason="no device"), *nccl_start("b", reason="no device"))
SYNC = {"all-grads-sync": (6800, 6900), "forward-backward": (905, 930)}


def test_two_hosts_over_sockets_are_slower_than_one(tmp_path):
    found = find_scaling_causes(
        tables(
            tmp_path,
            one=megatron_job(step_ms=950, batch=64, tflops=140, start_lines=nccl_start("a")),
            two=megatron_job(step_ms=7800, batch=128, tflops=17.05, timers=SYNC, start_lines=SOCKETS, seed=1),
        )
    )
    assert [(f.cause, f.severity, f.confidence) for f in found] == [("no_rdma_fallback", "critical", "high")]
    # twice the devices: (128 / 7.8) / (64 / 0.95) = 0.2436 times the throughput, 12 % of the ideal
    assert value(found[0], "scaling efficiency at 2 times") == pytest.approx(0.1218, rel=0.01)
    assert value(found[0], "share of the step in gradient synchronisation") == pytest.approx(6800 / 7800, rel=0.01)
    assert value(found[0], "forward and backward pass (unchanged") == pytest.approx(905)
    assert value(found[0], "transport between hosts on b") == "socket"
    assert {r.cause for r in found[0].rules_out} == {"slow_rank", "data_starved"}


def test_one_job_over_sockets_without_anything_to_compare_with(tmp_path):
    lines = [*nccl_start("a", reason="disabled"), *nccl_start("b", reason="disabled")]
    without = find_scaling_causes(tables(tmp_path / "1", job=megatron_job(step_ms=950, batch=64, start_lines=lines)))
    assert [(f.cause, f.severity, f.confidence) for f in without] == [("no_rdma_fallback", "warning", "high")]
    assert value(without[0], "reason") == "RDMA is turned off by NCCL_IB_DISABLE"
    assert "timers" not in without[0].title
    even = {"all-grads-sync": (40, 41), "forward-backward": (900, 905)}
    job = megatron_job(step_ms=950, batch=64, start_lines=SOCKETS, timers=even)
    assert [f.severity for f in find_scaling_causes(tables(tmp_path / "2", job=job))] == ["info"]  # 4 % of the step


def test_start_up_lines_in_a_log_per_host(tmp_path):
    logs = tables(tmp_path, node0=nccl_start("a", reason="no device"), node1=nccl_start("b", reason="no device"),
                  train=megatron_job(step_ms=7800, batch=128, timers=SYNC))  # fmt: skip
    assert [(f.cause, f.severity) for f in find_scaling_causes(logs)] == [("no_rdma_fallback", "critical")]


@pytest.mark.parametrize(
    "lines",
    [
        nccl_start("a", reason="no device"),  # one host: nothing goes over its network
        [*nccl_start("a", network="IB", reason="mlx"), *nccl_start("b", network="IB", reason="mlx")],
        [*nccl_start("a", network="IBext", reason="allowed"), *nccl_start("b", network="IBext", reason="allowed")],
    ],
)
def test_start_up_lines_that_are_no_fault(tmp_path, lines):
    assert find_scaling_causes(tables(tmp_path, job=megatron_job(step_ms=950, batch=64, start_lines=lines))) == []


def test_one_of_two_hosts_falls_back(tmp_path):
    lines = [*nccl_start("a", network="IB", reason="mlx"), *nccl_start("b", reason="no device")]
    found = find_no_rdma_fallback(tables(tmp_path, job=lines)["log_messages"])
    assert "1 of 2 hosts" in found[0].title


def test_device_counts_of_mindformers_logs(tmp_path):
    logs = tables(
        tmp_path,
        small__worker_0=mindformers_job(step_ms=1000, devices=8, batch=64),
        large__worker_0=mindformers_job(step_ms=1600, devices=32, batch=256, seed=1),
    )
    runs = logged_runs(logs["training_steps"], logs["settings"], logs["log_messages"], logs.get("series"))
    assert sorted(zip(runs["devices"], runs["work_per_step"], strict=True)) == [(8, 64), (32, 256)]
    without = logged_runs(logs["training_steps"], logs["settings"].query("name == 'global_batch_size'"))
    assert sorted(without["devices"]) == [8, 32]  # from samples per second and device
    found = find_scaling_causes(logs)
    assert [(f.cause, f.severity) for f in found] == [("poor_scaling", "warning")]
    assert "32 devices give 2.49 times the throughput of 8: 62%" in found[0].title  # 4 / 1.6, with noise
    assert value(found[0], "scaling efficiency at 32 devices") == pytest.approx(1 / 1.6, rel=0.01)


def test_longer_passes_of_layers_that_are_sharded_over_hosts(tmp_path):
    lines = [*nccl_start("a", network="IB", reason="mlx"), *nccl_start("b", network="IB", reason="mlx")]
    wide = megatron_job(step_ms=3000, batch=128, tflops=50, start_lines=lines,
                        timers={"all-grads-sync": (90, 95), "forward-backward": (2800, 2850)})  # fmt: skip
    small = megatron_job(step_ms=1000, batch=64, tflops=150, timers={"forward-backward": (900, 905)})
    arguments = [" world_size ................ {}", " tensor_model_parallel_size ................ {}"]
    wide = [a.format(n) for a, n in zip(arguments, (16, 16), strict=True)] + wide
    small = [arguments[0].format(8), *small]
    found = find_scaling_causes(tables(tmp_path, one=small, two=wide))
    assert [(f.cause, f.confidence) for f in found] == [("link_bound_sharding", "medium")]
    narrow = [line.replace("size ................ 16", "size ................ 8") if "tensor" in line else line
              for line in wide]  # fmt: skip
    assert [f.cause for f in find_scaling_causes(tables(tmp_path, one=small, two=narrow))] == ["poor_scaling"]


def test_a_tensor_parallel_group_wider_than_a_server_where_no_line_names_hosts(tmp_path):
    logs = tables(
        tmp_path,
        small__worker_0=mindformers_job(step_ms=1000, devices=8, batch=64),
        large__worker_0=mindformers_job(step_ms=2600, devices=16, batch=128, seed=1),
    )
    width = logs["settings"].iloc[[0]].assign(name="parallel_config.model_parallel", source="parallel.yaml")
    found = [
        find_scaling_causes({**logs, "settings": pd.concat([logs["settings"], width.assign(value=tensor_parallel)])})
        for tensor_parallel in ("16", "8")
    ]
    assert [[(f.cause, f.severity) for f in causes] for causes in found] == [
        [("link_bound_sharding", "critical")], [("poor_scaling", "critical")],
    ]  # fmt: skip


def test_jobs_that_scale_or_cannot_be_compared(tmp_path):
    good = tables(
        tmp_path / "good",
        one=megatron_job(step_ms=950, batch=64, tflops=140),
        two=megatron_job(step_ms=990, batch=128, tflops=134.3, seed=1),
    )
    assert find_scaling_causes(good) == []
    same = tables(
        tmp_path / "same",
        before=megatron_job(step_ms=950, batch=64, tflops=140),
        after=megatron_job(step_ms=1900, batch=64, tflops=70, seed=1),  # slower on the same devices: not scaling
    )
    assert find_scaling_causes(same) == []
    untold = tables(tmp_path / "untold", a=megatron_job(step_ms=900, batch=64), b=megatron_job(step_ms=2000, batch=128))
    assert len(logged_points(logged_runs(untold["training_steps"], untold["settings"]))) == 0
    assert find_scaling_causes(untold) == []
    assert find_scaling_causes({"training_steps": TRAINING_STEPS.empty(), "log_messages": LOG_MESSAGES.empty()}) == []


@pytest.mark.parametrize(
    ("part", "cause"),
    [("communication", "exposed_communication"), ("late_ranks", "slow_rank"), ("bubble", "pipeline_bubble"),
     ("input", "data_starved"), ("launch_gaps", "small_ops")],
)  # fmt: skip
def test_the_part_that_is_most_of_the_loss_is_the_cause(part, cause):
    frame = pd.DataFrame({"devices": [8, 64], "work_per_step": [8, 64], "step_us": [100.0, 200.0],
                          "computing_us": [90.0, 100.0], "communication_us": [10.0, 20.0]})  # fmt: skip
    frame[f"{part}_us"] = [10.0, 100.0] if part == "communication" else [0.0, 80.0]
    if part == "communication":
        frame["computing_us"] = [90.0, 100.0]
    found = find_poor_scaling(frame)[0]
    assert (found.cause, found.severity, found.confidence) == (cause, "warning", "high")
    lost = [e.value for e in found.evidence if e.fact.startswith("device time lost to")]
    assert value(found, "scaling efficiency at 64 devices") + sum(lost) == pytest.approx(1)


def test_the_packaged_curve_bends_where_it_says(data_samples):
    points = pd.read_csv(data_samples / "scaling/points.csv")
    found = find_poor_scaling(points)
    assert all(f.playbook == "T4" for f in found)
    assert find_poor_scaling(points.head(1)) == []


def test_the_diagnosis_of_a_folder_of_logs(tmp_path):
    for name, lines in {
        "one.log": megatron_job(step_ms=950, batch=64, tflops=140),
        "two.log": megatron_job(step_ms=7800, batch=128, tflops=17.05, timers=SYNC, start_lines=SOCKETS),
    }.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    causes = wb.diagnose(tmp_path).causes
    assert causes[0].cause == "no_rdma_fallback"
