from log_text import all_notes, messages, read_text, steps

MIB = 1024**2
SUMMARY = (
    "Device MOC memory size: 62432M\nMindSpore Used memory size: 59392M\nMindSpore memory base address: 0\n"
    "Used peak memory usage (without fragments): 48874M\nActual peak memory usage (with fragments): 50910M\n"
)
MARK = "epoch: 1 step: 1, loss is 1.0\n"


def test_memory_summary_is_one_message(tmp_path):
    readings = read_text(tmp_path, SUMMARY)
    assert messages(readings, "memory_summary") == [
        {
            "device_memory_bytes": 62432 * MIB,
            "budget_bytes": 59392 * MIB,
            "used_peak_bytes": 48874 * MIB,
            "actual_peak_bytes": 50910 * MIB,
        }
    ]


def test_each_block_keeps_the_rank_and_stage_of_its_heading(tmp_path):
    text = (
        f"# dry run, pipeline stage 0, rank 0\n{SUMMARY}\n# dry run, pipeline stage 1, rank 16\n"
        + SUMMARY.replace("48874", "40000")
    )  # fmt: skip
    readings = read_text(tmp_path, text, name="dryrun.log")
    table = readings["log_messages"].table
    assert table.rank_id.tolist() == [0, 16]
    found = messages(readings, "memory_summary")
    assert [m["stage"] for m in found] == [0, 1]
    assert [m["used_peak_bytes"] for m in found] == [48874 * MIB, 40000 * MIB]


def test_out_of_memory_of_graph_mode_with_its_statistic(tmp_path):
    text = (
        "Out of Memory!!! Request memory size: 1024B, Memory Statistic:\nDevice HBM memory size: 32768M\n"
        "Total Static Memory size: 20000M\nTotal Dynamic memory size: 9000M\nDynamic memory size of this graph: 8000M\n"
    )
    readings = read_text(tmp_path, text)
    assert messages(readings, "oom") == [{"request_bytes": 1024}]
    assert messages(readings, "memory_summary") == [
        {
            "device_memory_bytes": 32768 * MIB,
            "static_bytes": 20000 * MIB,
            "dynamic_bytes": 9000 * MIB,
            "graph_dynamic_bytes": 8000 * MIB,
        }
    ]


def test_new_channel_summary(tmp_path):
    text = MARK + (
        "[INFO] MD(20417,ffff9c3d0ac0,python):2025-05-09-14:31:01.018.964 [mindspore/x.cc:103] ~DataQueueOp] \n"
        "channel_name: 29475464-f51b-11ee-b72b-000000000000;\nhave_sent: 390;\nhost_queue: 0, 0, 0, 1;\n"
        "device_queue: 0, 0, 1, 0;\n      push_first_start_time -> push_first_end_time\n"
        "2025-05-09-13:23:00.179.611 -> 2025-05-09-13:23:00.181.784\n            push_start_time -> push_end_time\n"
        "2025-05-09-14:30:53.021.146 -> 2025-05-09-14:30:53.026.146\n"
        "2025-05-09-14:31:00.621.146 -> 2025-05-09-14:31:01.018.964\n"
    )
    facts = messages(read_text(tmp_path, text), "data_queue")[0]
    assert facts["have_sent"] == 390
    assert facts["host_queue"] == [0, 0, 0, 1]
    assert facts["device_queue"] == [0, 0, 1, 0]
    assert facts["push_us"] == [2173.0, 5000.0, 397_818.0]  # 181.784 - 179.611 ms, 5 ms, 1018.964 - 621.146 ms
    assert facts["between_pushes_us"][-1] == 7_595_000.0  # 14:30:53.026146 to 14:31:00.621146


def test_old_channel_summary_on_one_line_or_several(tmp_path):
    text = MARK + (
        "preprocess_batch: 49; batch_queue: 0, 0, 64; push_start_time: 2022-05-09-11:36:00.521.386, "
        "2022-05-09-11:36:00.782.215; push_end_time: 2022-05-09-11:36:00.530.386, 2022-05-09-11:36:00.782.515;\n"
    )
    facts = messages(read_text(tmp_path, text), "data_queue")
    assert len(facts) == 1
    assert facts[0]["preprocess_batch"] == 49
    assert facts[0]["batch_queue"] == [0, 0, 64]
    assert facts[0]["push_us"] == [9000.0, 300.0]
    lines = messages(read_text(tmp_path, text.replace("; ", ";\n")), "data_queue")
    assert lines == facts


def test_pass_table(tmp_path):
    text = (
        MARK + "TotalTime = 12.526, [16]\n[parse]: 0.0277\n[optimize]: 9.8, [2]\n    [Cycle 1]: 4.1\n[task_emit]: 1.5\n"
    )
    facts = messages(read_text(tmp_path, text), "pass_time")[0]
    assert (facts["total_s"], facts["parse_s"], facts["optimize_s"], facts["task_emit_s"]) == (12.526, 0.0277, 9.8, 1.5)


CONFIG = """{'batch_size': 32,
 'callbacks': [OrderedDict([('type', 'MFLossMonitor')])],
 'context': {'device_target': 'Ascend',
             'mode': 0},
 'note': 'first part '
         'second part',
 'recompute_config': <mindformers.RecomputeConfig object at 0xfffd>,
 'lr': 0.0005}
"""


def test_printed_configuration_is_settings(tmp_path):
    settings = read_text(tmp_path, CONFIG + MARK)["settings"].table.set_index("name").value
    assert settings["batch_size"] == "32"
    assert settings["context.device_target"] == "Ascend"
    assert settings["note"] == "first part second part"
    assert settings["lr"] == "0.0005"


def test_torn_configuration_gives_its_single_lines_and_no_step_is_lost(tmp_path):
    readings = read_text(tmp_path, CONFIG.partition(" 'lr'")[0] + MARK)
    settings = readings["settings"].table.set_index("name").value
    assert settings["batch_size"] == "32"
    assert "context.device_target" not in settings
    assert steps(readings).loss.tolist() == [1.0]
    assert any("torn" in n for n in all_notes(readings))
