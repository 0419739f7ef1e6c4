import pytest
from log_text import messages, read_text

from workbench.readers.log_messages import MESSAGE_KINDS
from workbench.readers.log_rules import RULES

GIB = 1024.0**3
ASCEND = "[ERROR] DEVICE(90400,fffe0b7fe1e0,python):2025-10-12-03:41:11.454.124 [mindspore/x.cc:240] RunGraph] "
DATA = "[WARNING] MD(20417,ffff7a2e11e0,python):2025-06-17-10:02:42.480.113 [mindspore/x.cc:915] Detect] "

LINES = {  # text -> (kind, fields)
    ASCEND + "Run task for graph:kernel_graph_1 error! The details": ("task_failed", {"graph": "kernel_graph_1"}),
    "EI0002: The wait execution of the Notify register times out. Reason: The Notify register has not received the "
    "Notify record from remote rank [3].base information: [streamID:[9], taskID[33], taskType[Notify Wait], "
    "tag[AllReduce_hccl_world_group].]": (
        "timeout_collective",
        {"code": "EI0002", "remote_rank": 3, "tag": "AllReduce_hccl_world_group"},
    ),
    "Communication_Error_Timeout(EI0002): notify from remote rank[local]": (
        "timeout_collective",
        {"code": "EI0002", "remote_rank": "local"},
    ),
    "[Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=6075, OpType=_ALLGATHER_BASE, "
    "NumelIn=1, Timeout(ms)=1800000) ran for 1802246 milliseconds before timing out.": (
        "timeout_collective",
        {"sequence": 6075, "op": "_ALLGATHER_BASE", "limit_s": 1800.0, "ran_s": 1802.246},
    ),
    "EI0006: Getting socket times out. Reason: 1. The remote does not initiate": ("timeout_link", {"code": "EI0006"}),
    "wait socket establish timeout, role[1] rank[12] timeout[120]": (
        "timeout_link",
        {"role": 1, "rank_in_line": 12, "limit_s": 120},
    ),
    "EE1002: Stream synchronize timeout.": ("timeout_stream", {"code": "EE1002"}),
    "EE9999: Inner Error! event wait timeout": ("timeout_stream", {"code": "EE9999"}),
    "EI0011: no memory for the link": ("link_memory", {"code": "EI0011"}),
    "Distribute Task Failed": ("task_failed", {}),
    "Out of Memory!!! Request memory size: 20131840B, Memory Statistic:": ("oom", {"request_bytes": 20131840}),
    ASCEND + "Memory not enough: current free memory size[1207959552] is smaller than required size[2491416576].": (
        "oom",
        {"free_bytes": 1207959552, "request_bytes": 2491416576},
    ),
    "Device(id:0) memory isn't enough and alloc failed, kernel name: kernel_graph_0, alloc size: 2491416576B.": (
        "oom",
        {"device_id": 0, "kernel": "kernel_graph_0", "request_bytes": 2491416576},
    ),
    "RuntimeError: NPU out of memory. Tried to allocate 5.03 GiB (NPU 3; 60.96 GiB total capacity; 49.47 GiB already "
    "allocated; 49.47 GiB current active; 1.32 GiB free; 57.55 GiB reserved in total by PyTorch)": (
        "oom",
        {
            "request_bytes": 5.03 * GIB,
            "total_capacity_bytes": 60.96 * GIB,
            "already_allocated_bytes": 49.47 * GIB,
            "current_active_bytes": 49.47 * GIB,
            "free_bytes": 1.32 * GIB,
            "reserved_bytes": 57.55 * GIB,
        },
    ),
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU 1 has a total capacity of 79.15 GiB "
    "of which 101.25 MiB is free. Process 41233 has 75.41 GiB memory in use. Including non-PyTorch memory, this "
    "process has 2.13 GiB memory in use. Of the allocated memory 1.61 GiB is allocated by PyTorch, and 18.40 MiB is "
    "reserved by PyTorch but unallocated. If reserved but unallocated memory is large try max_split_size_mb.": (
        "oom",
        {
            "request_bytes": 224 * GIB / 1024,
            "total_capacity_bytes": 79.15 * GIB,
            "free_bytes": 101.25 * GIB / 1024,
            "process_bytes": 2.13 * GIB,
            "already_allocated_bytes": 1.61 * GIB,
            "reserved_bytes": 1.61 * GIB + 18.40 * GIB / 1024,
            "device_id": 1,
        },
    ),
    DATA + "It is estimated that the task may collapse due to out of memory!": ("oom_warning", {}),
    DATA + "Memory consumption is more than 90%, which may cause OOM.": ("oom_warning", {"host_used_share": 0.9}),
    "Device pool info: Total allocated mem:49152M, peak used mem:46021M, in used mem:44870M, total idle mem:4282M.": (
        "memory_pool",
        {
            "total_allocated_mem_bytes": 49152 * 1024**2,
            "peak_used_mem_bytes": 46021 * 1024**2,
            "in_used_mem_bytes": 44870 * 1024**2,
            "total_idle_mem_bytes": 4282 * 1024**2,
        },
    ),
    "Malloc device memory failed, free memory size is less than half of total memory size.Device 5 Device MOC total "
    "size:65464696832 Device MOC free size:7130316800 may be other processes occupying this card": (
        "device_in_use",
        {"device_id": 5, "total_bytes": 65464696832, "free_bytes": 7130316800},
    ),
    DATA + "Bad performance attention, it takes more than 25 seconds to fetch a batch of data from dataset pipeline": (
        "slow_data",
        {"limit_s": 25, "what": "batch"},
    ),
    DATA + "Bad performance attention, it waits more than 25 seconds and unable to fetch first Batch of data": (
        "slow_data",
        {"limit_s": 25, "what": "first_batch"},
    ),
    DATA + "Bad performance attention, it takes more than 25 seconds to generator.__next__ new row": (
        "slow_data",
        {"limit_s": 25, "what": "generator"},
    ),
    DATA + "Bad performance attention, it takes more than 25 seconds to fetch and send a batch of data into device": (
        "slow_data",
        {"limit_s": 25, "what": "batch_to_device"},
    ),
    DATA + "It has been waiting for 300.000s because the sub-process worker of the Map operation is hanging.": (
        "data_hang",
        {"waited_s": 300.0},
    ),
    "For 'GetNext', get data timeout. Queue name: 29475464": ("data_timeout", {}),
    "GetNext error may be caused by slow data processing (bigger than 20s / batch)": ("data_timeout", {}),
    DATA + "Device Connector Size: 0.4, Connector Capacity: 16, Utilization: 2.5%, Empty Freq: 84.6%": (
        "data_autotune",
        {"size": 0.4, "capacity": 16, "utilization_share": 0.025, "empty_share": 0.846},
    ),
    'Added request to change "num_parallel_workers" of Operator: MapOp(ID:3)From old value: [2] to new value: [6]': (
        "data_autotune",
        {"setting": "num_parallel_workers", "op": "MapOp(ID:3)", "old": 2, "new": 6},
    ),
    "Dataset Pipeline is not the bottleneck. No configuration changes": ("data_autotune", {}),
    'The function "g" at the file "train.py", line 16 has been compiled again. Try to reuse': (
        "recompile",
        {"function": "g", "file": "train.py", "line": 16},
    ),
    "Constant value tensor are detected in tuple or list, which might cause recompiling when": ("recompile", {}),
    "opt_global_step: 41, skip_data_grad_norm_threshold: 3.0, is_skip: [ True]": (
        "norm_guard",
        {"guard_step": 41, "threshold": 3.0, "skipped": "True"},
    ),
    "Current global norm [44.31] of step 41 has been 2 consecutive times greater than threshold: 3.0": (
        "norm_guard",
        {"norm": 44.31, "guard_step": 41, "times": 2, "threshold": 3.0},
    ),
    "Current global norm [44.31] is greater equal than threshold 3.0, stop training...": (
        "norm_guard",
        {"norm": 44.31, "threshold": 3.0},
    ),
    "The current value of loss is NaN, terminate training.": ("nan_stop", {}),
    "In epoch: 1 step: 2, loss is NAN or INF, training process cannot continue, terminating training.": (
        "nan_stop",
        {"epoch": 1, "step_in_epoch": 2},
    ),
    "Stress detection failed with error code: 507011": ("hardware_check", {"code": 507011}),
    "SilentCheck detect SDC at step: 812": ("hardware_check", {"check_step": 812}),
    "node-a:3105:3311 [0] NCCL INFO NET/IB : No device found.": (
        "network_transport",
        {"transport": "no_ib_device", "host": "node-a"},
    ),
    "node-a:3105:3311 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.": (
        "network_transport",
        {"transport": "setting", "host": "node-a", "disabled": 1},
    ),
    "node-c:919:1150 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [receive] via NET/Socket/0": (
        "network_transport",
        {"transport": "socket", "host": "node-c"},
    ),
    "node-c:919:1150 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA": (
        "network_transport",
        {"transport": "ib", "host": "node-c"},
    ),
    "node-c:75:75 [1] NCCL INFO ncclCommInitRank comm 0x9b6e0 rank 1 nranks 16 cudaDev 1 busId 7e000 - Init START": (
        "network_transport",
        {"transport": "communicator", "host": "node-c", "ranks": 16},
    ),
    "node-c:75:75 [0] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]": (
        "network_transport",
        {"transport": "no_ib_library", "host": "node-c"},
    ),
    "node-a:3105:3311 [0] NCCL INFO Using network Socket": (
        "network_transport",
        {"transport": "socket", "host": "node-a"},
    ),
    "pipeline stages: 4 > 1, the loss on the last card is valid.": ("pipeline_loss", {"pipeline_stages": 4}),
    ".........Model Compiling, Please Wait a Moment...........": (
        "stage",
        {"stage": "Model Compiling, Please Wait a Moment"},
    ),
    ".........Build Net For Train..........": ("stage", {"stage": "Build Net For Train"}),
}
MARK = "epoch: 1 step: 1, loss is 1.0\n"


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[-40:])
def test_every_kind_of_line(tmp_path, line):
    kind, fields = LINES[line]
    found = messages(read_text(tmp_path, MARK + line + "\n"), kind)
    assert len(found) == 1
    assert (
        found[0] == pytest.approx(fields)
        if not any(isinstance(v, str) for v in fields.values())
        else found[0] == fields
    )


def test_every_kind_has_a_meaning():
    assert {rule.kind for rule in RULES} <= MESSAGE_KINDS.keys()


def test_message_has_level_module_time_and_step(tmp_path):
    line = ASCEND + "Run task for graph:kernel_graph_1 error!\n"
    table = read_text(tmp_path, MARK + line, name="rank_3/info.log")["log_messages"].table
    row = table[table.kind == "task_failed"].iloc[0]
    assert (row.level, row.module, row.rank_id, row.line, row.step) == ("ERROR", "DEVICE", 3, 2, 1)
    # 2025-10-12 is day 20373: 20373 * 86400 + 3 * 3600 + 41 * 60 + 11 = 1760240471
    assert row.time_ns == 1760240471_454_124_000


def test_report_without_own_time_takes_the_one_above(tmp_path):
    text = MARK + ASCEND + "Run task for graph:kernel_graph_1 error!\n---\nEI0002: remote rank [1].\n"
    table = read_text(tmp_path, text)["log_messages"].table
    row = table[table.kind == "timeout_collective"].iloc[0]
    assert row.time_ns == 1760240471_454_124_000
    assert "a line above" in row.fields


def test_other_warnings_are_counted_by_template(tmp_path):
    text = MARK + "".join(DATA + f"layer {n} is not init\n" for n in range(10)) + DATA + "another one\n"
    readings = read_text(tmp_path, text)
    assert [m.get("repeats") for m in messages(readings, "warning")] == [None, None, 7, None]


def test_exception_without_prefix(tmp_path):
    text = MARK + "Traceback (most recent call last):\n  File x\nValueError: bad shape (3, 4)\n"
    assert messages(read_text(tmp_path, text), "exception") == [{"type": "ValueError"}]


def test_rank_that_the_log_states_itself(tmp_path):
    text = MARK + DATA.replace("MD", "DISTRIBUTED") + "This node 2 rank id: 5\n"
    assert read_text(tmp_path, text, name="train.log")["training_steps"].table.rank_id.tolist() == [5]


def test_last_sign_of_life(tmp_path):
    table = read_text(tmp_path, DATA + "something\n" + MARK)["log_messages"].table
    assert table.kind.tolist()[-1] == "log_end"
    assert table.time_ns.tolist()[-1] == 1750154562_480_113_000
