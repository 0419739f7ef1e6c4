"""Ranks and profile windows of files in all layouts."""

from pathlib import Path

import pytest

from workbench.readers.places import place_files
from workbench.readers.placing import FileToPlace, Place
from workbench.readers.precedence import tables_to_read
from workbench.readers.siblings import separate_siblings


def place(root: Path, *names: str, beside: tuple[str, ...] = (), logs: tuple[str, ...] = ()):
    for name in (*names, *beside, *logs):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    files = [FileToPlace(root / n, Path(n).stem, True) for n in names]
    files += [FileToPlace(root / n, "training_log", False) for n in logs]
    places, notes = place_files(root, files)
    return {str(p.relative_to(root)): (x.rank_id, x.window) for p, x in places.items()}, [n.problem for n in notes]


A = "hostA_100_20260101000000000_ascend_ms/ASCEND_PROFILER_OUTPUT/kernel_details.csv"
B = "hostA_100_20260101000500000_ascend_ms/ASCEND_PROFILER_OUTPUT/kernel_details.csv"


def test_modern_profiles_take_the_rank_from_profiler_info(tmp_path):
    second = A.replace("_100_", "_101_")
    places, notes = place(
        tmp_path,
        A,
        second,
        beside=(f"{Path(A).parts[0]}/profiler_info_1.json", f"{Path(second).parts[0]}/profiler_info_0.json"),
    )
    assert places == {A: (1, 0), second: (0, 0)}
    assert notes == []


def test_windows_of_a_rank_are_in_time_order(tmp_path):
    early = "z_100_20251231235959000_ascend_ms"
    names = (B, A, f"{early}/ASCEND_PROFILER_OUTPUT/trace_view.json")
    infos = tuple(f"{Path(n).parts[0]}/profiler_info_3.json" for n in names)
    places, notes = place(tmp_path, *names, beside=infos)
    assert places == {names[2]: (3, 0), A: (3, 1), B: (3, 2)}
    assert notes == ["Rank 3 was profiled by 2 processes: a restart, or runs that do not belong together."]


def test_a_copy_of_a_capture_is_left_out(tmp_path):
    places, notes = place(tmp_path, f"a/{A}", f"backup/{A}", f"a/{B}")
    assert places == {f"a/{A}": (0, 0), f"a/{B}": (0, 1)}
    assert len(notes) == 1
    assert "second copy" in notes[0]


def test_unknown_ranks_are_numbered_by_process_with_a_note(tmp_path):
    names = (A, B, A.replace("_100_", "_007_"))
    places, notes = place(tmp_path, *names)
    assert places == {names[2]: (0, 0), A: (1, 0), B: (1, 1)}
    assert notes == ["2 profile folder(s) do not say their rank: they are numbered by name."]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("profiler/hccl_raw_2.csv", 2),
        ("profiler/step_trace_raw_5_detail_time.csv", 5),
        ("profiler/ascend_cluster_analyse_pipeline-parallel_4_8_3.csv", 3),
        ("profiler/aicore_intermediate_1_type.csv", 1),
        ("rank7_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv", 7),
        ("test_rank_6/ASCEND_PROFILER_OUTPUT/step_trace_time.csv", 6),
        ("profiler/rank-4_20240101120000_ascend_ms/ASCEND_PROFILER_OUTPUT/op_statistic.csv", 4),
        ("rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", 34),
        ("datapipe/rank_2/pipeline_profiling_2.json", 2),
        ("PROF_000001_20230818142704322_ABC/device_3/timeline/msprof_0_2_1.json", 3),
        ("PROF_000001_20230818142704322_ABC/mindstudio_profiler_output/op_summary_20230818142704.csv", 0),
        ("h_1_20260101000000000_ascend_ms/FRAMEWORK/cpu_op_type_info_9.csv", 9),
    ],
)
def test_rank_of_one_file(tmp_path, name, rank):
    places, notes = place(tmp_path, name)
    assert places == {name: (rank, 0)}
    assert notes == []


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("worker_11.log", 11),
        ("log/rank_3/info.log", 3),
        ("train_2024.log", 0),
        ("loss_01.csv", 0),
        ("frank_3.csv", 0),
        ("metrics/rank_5.jsonl", 5),
    ],
)
def test_rank_of_a_log(tmp_path, name, rank):
    places, _ = place(tmp_path, logs=(name,))
    assert places == {name: (rank, 0)}


def test_a_cpu_profile_gives_its_rank_to_all_its_files(tmp_path):
    folder = "h_1_20260101000000000_ascend_ms"
    trace, cpu = f"{folder}/ASCEND_PROFILER_OUTPUT/trace_view.json", f"{folder}/FRAMEWORK/cpu_op_type_info_5.csv"
    assert place(tmp_path, trace, cpu)[0] == {trace: (5, 0), cpu: (5, 0)}


def test_old_layout_flat_files_and_the_folder_inside_are_one_window(tmp_path):
    flat, inner = (
        "profiler/hccl_raw_0.csv",
        "profiler/rank-0_20240101120000_ascend_ms/ASCEND_PROFILER_OUTPUT/op_statistic.csv",
    )
    raw = "profiler/PROF_000001_20240101115900000_ABC/device_0/timeline/msprof_0_2_1.json"
    places, notes = place(tmp_path, flat, inner, beside=("profiler/profiler_info_0.json",))
    assert places == {flat: (0, 0), inner: (0, 0)}
    places, notes = place(tmp_path / "b", flat, raw, beside=("profiler/profiler_info_0.json",))
    assert places == {flat: (0, 0), raw: (0, 0)}
    assert notes == []


def test_data_pipeline_files_do_not_shift_the_windows(tmp_path):
    pipe = "datapipe/rank_0/pipeline_profiling_0.json"
    places, _ = place(tmp_path, pipe, A, B, beside=("hostA_100_20260101000000000_ascend_ms/profiler_info_0.json",))
    assert places == {pipe: (0, 0), A: (0, 0), B: (0, 1)}


def test_missing_ranks_are_named(tmp_path):
    names = [f"rank{r}_ascend_pt/ASCEND_PROFILER_OUTPUT/step_trace_time.csv" for r in (0, 1, 3, 4)]
    assert place(tmp_path, *names)[1] == ["4 of 5 ranks are here; missing: 2."]


def test_a_rank_of_which_only_the_description_is_here_is_missing(tmp_path):
    names = [f"rank{r}_ascend_pt/ASCEND_PROFILER_OUTPUT/step_trace_time.csv" for r in (0, 1, 3)]
    _, notes = place(tmp_path, *names, "rank2_ascend_pt/profiler_metadata.json")
    assert notes == ["3 of 4 ranks are here; missing: 2."]


def test_the_profile_folder_may_be_what_was_opened(tmp_path):
    folder = tmp_path / Path(A).parts[0]
    path = tmp_path / A
    path.parent.mkdir(parents=True)
    path.touch()
    (folder / "profiler_info_2.json").touch()
    for root in (folder, path.parent, path):
        assert place_files(root, [FileToPlace(path, "kernel_details", True)])[0] == {path: Place(2, 0)}


def test_the_best_of_several_forms_is_read():
    place = (0, 0)
    text = (Path("x_ascend_ms/ASCEND_PROFILER_OUTPUT/kernel_details.csv"), "kernel_details", place, ("kernels",))
    prof = (
        Path("x_ascend_ms/PROF_1_2/mindstudio_profiler_output/op_summary_1.csv"),
        "kernel_details",
        place,
        ("kernels",),
    )
    base = (Path("x_ascend_ms/ASCEND_PROFILER_OUTPUT/a.db"), "profiler_database", place, ("kernels", "telemetry"))
    log = (Path("worker_0.log"), "training_log", place, ("training_steps",))
    assert tables_to_read([text, prof, base, log]) == {
        text[0]: ("kernels",),
        prof[0]: (),
        base[0]: ("telemetry",),
        log[0]: ("training_steps",),
    }
    assert tables_to_read([prof]) == {prof[0]: ("kernels",)}


def test_a_summary_over_ranks_is_read_where_the_ranks_are_missing():
    summary = (
        Path("cluster_analysis_output/cluster_step_trace_time.csv"),
        "cluster_step_trace_time",
        (0, 0),
        ("step_time",),
    )
    ranks = [(Path(f"r{r}/step_trace_time.csv"), "step_trace_time", (r, 0), ("step_time",)) for r in (0, 1)]
    assert tables_to_read([summary, *ranks])[summary[0]] == ()
    assert tables_to_read([summary, ranks[0]]) == {summary[0]: ("step_time",), ranks[0][0]: ()}


def test_folders_of_different_kinds_are_one_rank(tmp_path):
    places, notes = place(tmp_path, "ops/kernel_details.csv", "line/trace_view.json", "rank_5/op_statistic.csv")
    assert set(places.values()) == {(5, 0)}
    assert notes == []
    places, notes = place(tmp_path / "b", "x/kernel_details.csv", "y/kernel_details.csv")
    assert places == {"x/kernel_details.csv": (0, 0), "y/kernel_details.csv": (1, 0)}
    assert len(notes) == 1


def test_files_of_one_kind_in_one_folder_are_never_one_sum():
    at = Path("f")
    kinds = {at / f"op_statistic_{n}.csv": "op_statistic" for n in ("before", "after")}
    kinds |= {
        at / "op_summary_slice_0_20240101120000.csv": "kernel_details",
        at / "op_summary_slice_1_20240101120000.csv": "kernel_details",
    }
    places, notes = separate_siblings(dict.fromkeys(kinds, Place(0, 0)), kinds)
    assert [places[p].window for p in kinds] == [1, 0, 0, 0]
    assert [n.problem for n in notes] == [
        "2 files of kind op_statistic of rank 0 in one folder: op_statistic_after.csv, op_statistic_before.csv."
    ]


def test_parts_of_a_timeline_are_not_read_beside_the_whole():
    folder = Path("PROF_1_2/device_0/timeline")
    names = ("msprof_0_2_1.json", "hccl_0_2_1.json", "task_time_0_2_1.json", "step_trace_0_2_1.json")
    chosen = tables_to_read([(folder / n, "trace", (0, 0), ("trace_events",)) for n in names])
    assert [bool(chosen[folder / n]) for n in names] == [True, False, False, True]
    assert tables_to_read([(folder / names[1], "trace", (0, 0), ("trace_events",))]) == {
        folder / names[1]: ("trace_events",)
    }
