import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import UnreadableFileError, WorkbenchError
from workbench.readers import ALL_KINDS
from workbench.readers.kinds import FileContext
from workbench.readers.series import read_series, sniff_series

MIB = 1024**2


def read(folder, text, name="data.csv", rank_id=0):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(data)
    assert sniff_series(path, data[:65536])
    return read_series(path, FileContext(rank_id=rank_id, root=folder))


@pytest.fixture
def case(shared_dir):
    """Reads a CSV of the diagnosis cases after making sure that no other kind takes it."""

    def read_case(name):
        path = shared_dir / "cases" / name
        head = path.read_bytes()[:65536]
        assert next(kind.name for kind in ALL_KINDS if kind.sniff(path, head)) == "csv_series"
        return {k: v.table for k, v in read_series(path, FileContext(root=path.parent)).items()}

    return read_case


def metric(table, name):
    return table[table.metric == name].value.tolist()


def test_case_02_scores(case):
    tables = case("02-loss-near-zero-leak/generation_eval.csv")
    assert list(tables) == ["evals"]
    assert metric(tables["evals"], "teacher_forced_loss") == [2.287, 0.0121, 0.0020]
    assert metric(tables["evals"], "repeat_4gram_rate") == [0.031, 0.618, 0.883]
    assert tables["evals"].step.tolist()[:3] == [0, 200, 400]
    assert tables["evals"].n.unique().tolist() == [400]


def test_case_03_utilisation(case):
    tables = case("03-data-queue-starved/device_util.csv")
    table = tables["telemetry"]
    assert metric(table, "device_utilization_share")[:3] == [0.64, 0.06, 0.06]
    assert metric(table, "host_io_wait_share")[0] == 0.32
    assert table.time_ns.tolist()[1] == 10 * 10**9
    assert table.rank_id.isna().all()
    assert len(table) == 90


def test_case_04_memory_by_step(case):
    table = case("04-step-time-creeps-up/host_memory.csv")["telemetry"]
    assert metric(table, "host_memory_bytes")[0] == pytest.approx(3091.3 * MIB)
    assert metric(table, "device_reserved_bytes")[-1] == 47104 * MIB
    assert metric(table, "live_tensors")[0] == 2067
    assert table.step.tolist()[:2] == [50, 100]


def test_case_06_cards(case):
    table = case("06-oom-card-already-in-use/device_usage.csv")["telemetry"]
    assert metric(table, "device_memory_used_bytes")[5] == 55630 * MIB
    assert metric(table, "device_processes") == [0, 0, 0, 0, 0, 1, 0, 0]
    assert table.device_id.tolist()[:8] == list(range(8))


def test_case_07_memory_by_rank(case):
    tables = case("07-slow-card-fragmentation/memory_by_rank.csv")
    assert tables["memory_timeline"].reserved_bytes.tolist()[12] == 58930 * MIB
    assert tables["memory_timeline"].allocated_bytes.tolist()[12] == 46820 * MIB
    table = tables["telemetry"]
    assert metric(table, "allocation_retries")[12] == 61
    assert metric(table, "device_max_reserved_bytes")[12] == 58960 * MIB
    assert table.step.unique().tolist() == [11]


def test_case_09_evaluations_mix_and_losses(case):
    table = case("09-eval-subset-after-mix-change/eval_by_subset.csv")["evals"]
    assert len(table) == 36
    last = table[(table.step == 12000) & (table.subset == "general_knowledge")].iloc[0]
    assert (last.metric, last.value, last.n) == ("score", 0.414, 2850)
    mix = case("09-eval-subset-after-mix-change/data_mix.csv")["data_mix"]
    assert mix[["from_step", "source", "weight_share"]].values.tolist()[5] == [6001, "web_en", 0.07]
    assert len(mix) == 11
    tables = case("09-eval-subset-after-mix-change/train_loss.csv")
    assert tables["training_steps"].loss.tolist()[-1] == 2.080
    assert tables["evals"][["subset", "metric", "value"]].values.tolist()[0] == ["validation", "loss", 2.340]


def test_case_10_steps_with_lengths(case):
    table = case("10-recompile-on-new-shapes/steps.csv")["training_steps"]
    assert len(table) == 60
    assert table[["step", "sequence_length", "step_us"]].values.tolist()[0] == [1, 512, 19_970_000.0]
    assert table.step_us.tolist()[4] == 600_000.0


def test_cases_11_to_14_settings(case):
    environment = case("11-slower-after-upgrade/environment.csv")["settings"].set_index("name").value
    assert (environment["before.training_library"], environment["after.training_library"]) == ("4.39.3", "4.40.0")
    storage = case("12-checkpoint-save-stall/storage_check.csv")["settings"].set_index("name").value
    assert storage["sequential_write_one_stream"] == "2.1 GB/s"
    assert (storage["ranks_writing"], storage["async_save"]) == ("8", "false")
    limits = case("13-collective-timeout-one-rank-silent/settings.csv")["settings"].set_index("name").value
    assert (limits["HCCL_EXEC_TIMEOUT_s"], limits["ranks"]) == ("1800", "16")
    plan = case("14-healthy-pipeline-first-stage/parallel.csv")["settings"].set_index("name").value
    assert (plan["pipeline_stage"], plan["eval_step_interval"]) == ("4", "20")


def test_units_in_headers(tmp_path):
    text = "Iteration;Step Time (ms);Loss;LR;tokens/s;reserved (GiB)\n1;512,5;2,25;1e-3;5868;1,5\n"
    tables = read(tmp_path, text)
    row = tables["training_steps"].table.iloc[0]
    assert (row.step, row.step_us, row.loss, row.learning_rate) == (1, 512_500.0, 2.25, 0.001)
    assert (row.tokens_per_s, row.device_reserved_bytes) == (5868, 1.5 * 1024**3)


def test_unknown_columns_keep_the_whole_file_in_series(tmp_path):
    tables = read(tmp_path, "step,loss,my_column,note\n1,2.5,7,ok\n2,2.4,,\n")
    assert tables["training_steps"].table.loss.tolist() == [2.5, 2.4]
    cells = tables["series"].table
    assert [tuple(r) for r in cells[["row", "column", "text"]].to_numpy()] == [
        (0, "step", "1"), (0, "loss", "2.5"), (0, "my_column", "7"), (0, "note", "ok"),
        (1, "step", "2"), (1, "loss", "2.4"),
    ]  # fmt: skip
    assert cells.value.tolist()[2] == 7
    assert math.isnan(cells.value.tolist()[3])


def test_series_keeps_numbers_as_written(tmp_path):
    cells = read(tmp_path, "step,step_time_ms,foo\n1,512.5,1\n")["series"].table
    assert cells.value.tolist() == [1, 512.5, 1]


def test_quantity_without_unit_is_not_guessed(tmp_path):
    tables = read(tmp_path, "step,step_time,loss\n1,512,2.0\n")
    assert tables["training_steps"].table.step_us.isna().all()
    assert "step_time" in tables["series"].table.column.tolist()


def test_loss_that_is_not_finite(tmp_path):
    table = read(tmp_path, "step,loss\n1,nan\n2,inf\n3,2.0\n4,\n5,oops\n")["training_steps"]
    assert table.table.loss_finite.tolist()[:3] == [False, False, True]
    assert table.table.loss_finite.isna().tolist()[3:] == [True, True]
    assert "oops" in str(table.notes[0])


def test_rank_from_column_name_or_place(tmp_path):
    assert read(tmp_path, "step,rank,loss\n1,3,2\n")["training_steps"].table.rank_id.tolist() == [3]
    assert read(tmp_path, "step,loss\n1,2\n", name="worker_7.csv")["training_steps"].table.rank_id.tolist() == [7]
    assert read(tmp_path, "step,loss\n1,2\n", name="a.csv", rank_id=2)["training_steps"].table.rank_id.tolist() == [2]
    telemetry = read(tmp_path, "step,rss_mb\n1,2\n", name="b.csv", rank_id=2)["telemetry"].table
    assert telemetry.rank_id.isna().all()


def test_times_by_unit_size_and_date(tmp_path):
    def times(text):
        return read(tmp_path, text)["telemetry"].table.time_ns.tolist()

    assert times("timestamp,cpu_pct\n1700000000,5\n") == [1_700_000_000_000_000_000]
    assert times("timestamp,cpu_pct\n1700000000123,5\n") == [1_700_000_000_123_000_000]
    assert times("time_ns,cpu_pct\n1700000000123456789,5\n") == [1_700_000_000_123_456_789]
    assert times("time,cpu_pct\n2025-05-11 09:12:03.118,5\n") == [1_746_954_723_118_000_000]


def test_header_below_other_lines_and_in_another_encoding(tmp_path):
    text = "# 训练记录\nstep,loss\n1,2.5\n"
    for encoding in ("utf-8-sig", "gb18030", "utf-16"):
        assert read(tmp_path, text.encode(encoding))["training_steps"].table.loss.tolist() == [2.5]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "foo,bar\n1,2\n"),
        ("a.csv", "just text\n"),
        ("a.txt", "First, step by step, we go\nand so on\n"),
        ("README", "The time, and the loss\n\nof the run\n"),
        ("a.md", "step,loss\n1,2\n"),
        ("a.json", '{"step": 1, "loss": 2}\n'),
        ("a.csv", ""),
    ],
)
def test_what_is_no_series(tmp_path, name, text):
    assert not sniff_series(tmp_path / name, text.encode())


def test_no_known_header_is_an_error(tmp_path):
    (tmp_path / "a.csv").write_text("foo,bar\n1,2\n")
    with pytest.raises(UnreadableFileError, match="known column"):
        read_series(tmp_path / "a.csv", FileContext())


def test_very_long_series_is_cut_and_said_so(tmp_path, monkeypatch):
    monkeypatch.setattr("workbench.readers.series.MAX_SERIES_CELLS", 4)
    tables = read(tmp_path, "step,foo\n1,1\n2,2\n3,3\n")
    assert len(tables["series"].table) == 4
    assert any("3 rows" in str(n) for n in tables["series"].notes)


TEXT = ("step,loss,step_time_ms\n" + "".join(f"{n},{10 - n / 10:.3f},500.5\n" for n in range(1, 21))).encode()


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=30), st.integers(min_value=0, max_value=len(TEXT)), st.integers(min_value=0, max_value=40))
def test_damage_never_raises_anything_else_and_never_gives_a_zero(tmp_path_factory, garbage, position, cut):
    path = tmp_path_factory.mktemp("series") / "a.csv"
    path.write_bytes(TEXT[:position] + garbage + TEXT[position + cut :])
    try:
        readings = read_series(path, FileContext(root=path.parent))
    except WorkbenchError:
        return
    assert all(len(r.table) or r.notes for r in readings.values())
    cells = re.split(rb"[,\n]", path.read_bytes())
    has_zero = any(c and not c.strip(b"0.") for c in cells)  # a cut inside 9.800 can leave 00
    if "training_steps" in readings and not garbage and not has_zero:
        assert 0 not in readings["training_steps"].table.loss.tolist()


def test_what_nvidia_smi_prints_every_few_seconds(tmp_path):
    text = (
        "timestamp, index, temperature.gpu, clocks.current.sm [MHz], power.draw [W], utilization.gpu [%], "
        "memory.used [MiB]\n2025/06/03 10:11:12.123, 0, 61, 1410 MHz, 250.51 W, 97 %, 40537 MiB\n"
        "2025/06/03 10:11:12.125, 1, 83, 1095 MHz, [N/A], 99 %, 40537 MiB\n"
    )
    table, notes = read(tmp_path, text)["telemetry"]
    values = {(r.device_id, r.metric): r.value for r in table.itertuples()}
    assert values[0, "device_clock_mhz"] == 1410
    assert values[1, "device_temperature_celsius"] == 83
    assert values[0, "device_power_watts"] == 250.51
    assert (1, "device_power_watts") not in values
    assert values[1, "device_utilization_share"] == 0.99
    assert values[0, "device_memory_used_bytes"] == 40537 * 2**20
    assert table["time_ns"].notna().all()
    assert ["[N/A]" in str(n) for n in notes] == [True]


def test_a_query_of_nvidia_smi_for_memory_alone_names_its_cards(tmp_path):
    text = "index, memory.total [MiB], memory.used [MiB]\n0, 62432 MiB, 3410 MiB\n3, 62432 MiB, 55210 MiB\n"
    table = read(tmp_path, text)["telemetry"].table
    values = {(r.device_id, r.metric): r.value / 2**20 for r in table.itertuples()}
    assert values == {
        (0, "device_memory_total_bytes"): 62432, (3, "device_memory_total_bytes"): 62432,
        (0, "device_memory_used_bytes"): 3410, (3, "device_memory_used_bytes"): 55210,
    }  # fmt: skip


@pytest.mark.parametrize(("columns", "letters"), [(580, 110), (580, 130)], ids=["the row is cut", "the header is cut"])
def test_many_columns_are_read_though_the_head_of_the_file_ends_before_the_first_row(tmp_path, columns, letters):
    names = [f"act_{n:0{letters}d}" for n in range(columns)]
    rows = [[step, 2.5, *range(step, step + columns)] for step in (1, 2)]
    text = "\n".join(",".join(map(str, row)) for row in (["step", "loss", *names], *rows)) + "\n"
    tables = read(tmp_path, text)
    assert tables["training_steps"].table["step"].tolist() == [1, 2]
    long = tables["series"].table
    assert long["row"].tolist() == [0] * (columns + 2) + [1] * (columns + 2)
    assert long["column"].tolist() == ["step", "loss", *names] * 2
    assert long["value"].tolist() == [1, 2.5, *range(1, 1 + columns), 2, 2.5, *range(2, 2 + columns)]
