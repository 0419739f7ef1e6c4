import csv
from pathlib import Path

import pandas as pd
import pytest

import workbench as wb
from tests.analyses.recompute_rows import graph_kernels, step_tasks
from tests.memory_rows import timeline
from workbench.findings.recompute import find_recompute_overhead
from workbench.tables import LOG_MESSAGES, SETTINGS

MIB, GIB = 2**20, 2**30
# the step of `graph_kernels`: 1,281 us, of which 240 us are copies whose outputs take 4 (MatMul) and 16 (GeLU) MiB
STEP_US, SPENT_US = 1281, 240


def tables(*, peak_mib=None, limit=None, ranks=(0,), kernels=None):
    made = {"kernels": graph_kernels(ranks=ranks) if kernels is None else kernels}
    if peak_mib is not None:
        peaks = peak_mib if isinstance(peak_mib, tuple) else (peak_mib,) * len(ranks)
        made["memory_timeline"] = pd.concat(
            [timeline((1, p * MIB / 2, p * MIB), rank_id=r) for r, p in zip(ranks, peaks, strict=True)]
        )
    if limit is not None:
        made["settings"] = SETTINGS.check(pd.DataFrame({"name": ["context.max_device_memory"], "value": [limit]}))
    return made


def fact(finding, start):
    return next(e.value for e in finding.evidence if e.fact.startswith(start))


def test_room_for_all_outputs_makes_recomputing_needless():
    (found,) = find_recompute_overhead(tables(peak_mib=50, limit="100MB"))  # 0.9 x 100 - 50 = 40 MiB are free
    assert (found.cause, found.severity, found.confidence) == ("recompute_overhead", "warning", "high")
    assert found.saves_us_per_step == SPENT_US
    assert fact(found, "share of computing") == pytest.approx(SPENT_US / STEP_US)
    assert fact(found, "outputs of all") == 20 * MIB / GIB
    assert fact(found, "of them kept") == 20 * MIB / GIB
    assert (fact(found, "highest memory"), fact(found, "limit")) == (50 * MIB / GIB, 100 * MIB / GIB)
    assert fact(found, "recomputed MatMul in *-Layer/attention/qkv-Dense") == 200
    assert "expect 1.041 instead of 1.281 ms per step" in found.fix
    assert "select_recompute_exclude" in found.fix
    assert found.culprit.op == "MatMul in *-Layer/attention/qkv-Dense"


@pytest.mark.parametrize(
    ("peak_mib", "saved_us"),
    [(80, 200 + 40 * 6 / 16), (88, 100)],  # 10 MiB: all MatMul and 6 of GeLU's 16; 2 MiB: half of MatMul's 4
)
def test_what_fits_is_the_gain(peak_mib, saved_us):
    (found,) = find_recompute_overhead(tables(peak_mib=peak_mib, limit="100MB"))
    assert found.saves_us_per_step == pytest.approx(saved_us)
    assert f"so {saved_us / 1e3:.3g} ms of it is needless" in found.title


@pytest.mark.parametrize("peak_mib", [89, 90, 99, 120])  # 1 MiB is worth 50 us, 3.9 % of computing: too little
def test_a_nearly_full_memory_is_what_recomputing_is_for(peak_mib):
    assert find_recompute_overhead(tables(peak_mib=peak_mib, limit="100MB")) == []


def test_a_rank_that_recomputes_nothing_and_takes_as_long_hides_the_gain():
    def job(other_us):
        """Rank 0 recomputes; rank 1 (another stage) does not, and computes 1,041 us and `other_us` more."""
        other = [*step_tasks(marked=()), ("Default/network-Net/head/MatMul-op7", other_us, "1")]
        return pd.concat([graph_kernels(), graph_kernels(ranks=(1,), tasks=other)], ignore_index=True)

    assert find_recompute_overhead(tables(peak_mib=50, limit="100MB", kernels=job(200))) == []  # 1,281 - 1,241
    (found,) = find_recompute_overhead(tables(peak_mib=50, limit="100MB", kernels=job(100)))
    assert found.saves_us_per_step == 1281 - 1141
    assert fact(found, "ranks that show it") == 1


def test_the_rank_that_gains_least_counts_for_the_job():
    (found,) = find_recompute_overhead(tables(ranks=(0, 1), peak_mib=(50, 88), limit="100MB"))
    assert (found.saves_us_per_step, fact(found, "ranks that show it")) == (100, 2)
    assert find_recompute_overhead(tables(ranks=(0, 1), peak_mib=(50, 95), limit="100MB")) == []


@pytest.mark.parametrize(
    ("known", "lacking"),
    [({}, ["limit", "peak"]), ({"peak_mib": 50}, ["limit"]), ({"limit": "100MB"}, ["peak"])],
)
def test_without_limit_or_peak_the_cost_is_only_told(known, lacking):
    (found,) = find_recompute_overhead(tables(**known))
    assert (found.severity, found.confidence, found.saves_us_per_step) == ("info", "medium", None)
    told = [e.fact for e in found.evidence if e.fact.startswith("not known: ")]
    assert [next(w for w in ("limit", "peak") if f"the {w} of" in t) for t in told] == lacking
    assert fact(found, "at most, with nothing recomputed") == pytest.approx(SPENT_US / STEP_US)


def test_without_sizes_as_much_as_the_whole_peak_has_to_be_free():
    kernels = graph_kernels(shapes=False)
    (found,) = find_recompute_overhead(tables(peak_mib=45, limit="100MB", kernels=kernels))  # 0.9 x 100 - 45 = 45
    assert (found.severity, found.confidence, found.saves_us_per_step) == ("warning", "medium", SPENT_US)
    assert any(e.fact.startswith("not known: the size of what would be kept") for e in found.evidence)
    assert find_recompute_overhead(tables(peak_mib=46, limit="100MB", kernels=kernels)) == []


def test_silent_where_little_or_nothing_is_recomputed():
    none = graph_kernels(tasks=step_tasks(marked=()))
    marked = graph_kernels(tasks=step_tasks(copied=()))
    little = graph_kernels(tasks=[*step_tasks(), ("Default/network-Net/MatMul-op7", 4000, "1")])  # 240 of 5,281 us
    for kernels in (none, marked, little):
        assert find_recompute_overhead(tables(peak_mib=50, limit="100MB", kernels=kernels)) == []


def test_silent_after_a_failed_allocation():
    failed = pd.DataFrame({"rank_id": [0], "file": ["a.log"], "line": [9], "kind": ["oom"], "text": ["out of memory"]})
    full = tables(peak_mib=50, limit="100MB") | {"log_messages": LOG_MESSAGES.check(failed)}
    assert find_recompute_overhead(full) == []


@pytest.mark.parametrize(("profile", "told"), [("every_block", 1), ("first_block", 1), ("single_operators", 0)])
def test_real_profiles_of_a_cpu_are_only_told(data_samples, profile, told):
    found = [f for f in wb.diagnose(data_samples / "recompute_cpu" / profile).causes if f.cause == "recompute_overhead"]
    assert [f.severity for f in found] == ["info"] * told


def test_a_limit_of_a_device_says_nothing_of_a_cpu_run():
    (found,) = find_recompute_overhead(
        tables(peak_mib=50, limit="100MB", kernels=graph_kernels().assign(accelerator_core="CPU"))
    )
    assert found.severity == "info"


def with_recomputation(source: Path, target: Path) -> float:
    """A device profile whose layers are marked and run again before their gradients; the time of a step's copies."""
    with source.open(newline="") as file:
        head, *rows = csv.reader(file)
    name, start, length = (head.index(c) for c in ("Name", "Start Time(us)", "Duration(us)"))
    made, late_us, spent_us, forward = [], 0.0, 0.0, []
    for row in rows:
        is_layer, is_gradient = "/layers-CellList/" in row[name], "::Gradients/" in row[name]
        moved = list(row)
        if is_layer:
            moved[name] = row[name].replace("Default/", "recompute_Default/", 1)
        if is_layer and is_gradient and forward:
            copies, forward = forward, []
            for copy in copies:
                copy[start] = f"{float(row[start]) + late_us:.3f}\t"
                late_us += float(copy[length])
                made.append(copy)
            spent_us = sum(float(copy[length]) for copy in copies)
        moved[start] = f"{float(row[start]) + late_us:.3f}\t"
        made.append(moved)
        if is_layer and not is_gradient:
            forward.append([*moved[:name], moved[name].replace("-op", "-op9"), *moved[name + 1 :]])
    target.parent.mkdir(parents=True)
    with target.open("w", newline="") as file:
        csv.writer(file).writerows([head, *made])
    return spent_us


def test_files_of_a_device_profile(data_samples, tmp_path):
    profile = next((data_samples / "simulated_devices" / "healthy").glob("*_ascend_ms"))
    output = tmp_path / profile.name / "ASCEND_PROFILER_OUTPUT"
    spent_us = with_recomputation(profile / output.name / "kernel_details.csv", output / "kernel_details.csv")
    memory = (profile / output.name / "memory_record.csv").read_bytes()
    (output / "memory_record.csv").write_bytes(memory)
    for limit, expected in (("58GB", ["recompute_overhead"]), ("24GB", [])):
        (tmp_path / "model.yaml").write_text(f'context:\n  max_device_memory: "{limit}"\n')
        found = wb.diagnose(tmp_path).causes
        assert [f.cause for f in found if f.severity != "info"] == expected
    (tmp_path / "model.yaml").write_text('context:\n  max_device_memory: "58GB"\n')
    first = wb.diagnose(tmp_path).causes[0]
    assert (first.confidence, fact(first, "limit of the memory")) == ("high", 58)
    assert first.saves_us_per_step == pytest.approx(spent_us, rel=0.05)  # the last step's copies; steps differ by 1 %
