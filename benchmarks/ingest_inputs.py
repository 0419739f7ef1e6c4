"""Makes the traces that `ingest.py` reads, in MindSpore's and in Kineto's form: the same for the same arguments."""

import json
import random

EPOCH_NS = 1_795_955_116_000_000_000
KINETO_US = 5_443_842_000_000.0
OPS = ("MatMulV3", "FlashAttentionScore", "RmsNorm", "SwiGlu", "Add", "Cast", "ApplyRotaryPosEmb", "ApplyAdamW")
WRITE_EVENTS = 20_000
HOST, CANN, DEVICE, HCCL = 1, 20480256, 20480416, 20480480
LAYERS = {HOST: "MindSpore", CANN: "CANN", DEVICE: "Ascend Hardware", HCCL: "HCCL"}


def mindspore_trace(path, size_bytes, *, seed=0):
    """A trace_view.json of at least `size_bytes`: host, CANN and device events and flows, times as text."""
    rng = random.Random(seed)
    with path.open("w") as f:
        f.write("[" + ", ".join(json.dumps(_name(pid, name)) for pid, name in LAYERS.items()))
        now, number = EPOCH_NS, 0
        while f.tell() < size_bytes:
            events = []
            while len(events) < WRITE_EVENTS:
                now, number = now + rng.randrange(5_000, 200_000), number + 1
                events += _launch(now, number, rng)
            f.write(", " + ", ".join(map(json.dumps, events)))
        f.write("]")


def _name(pid, name):
    return {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}


def _us(ns):
    return f"{ns // 1000}.{ns % 1000:03d}"


def _launch(now, number, rng):
    op, host, device = OPS[number % len(OPS)], _us(now), _us(now + 40_000)
    scope = f"Default/network-Model/layers-CellList/{number % 32}-DecoderLayer/attention-SelfAttention"
    launch = f"Kernel::KernelLaunch::{scope}/{op}-op{number % 700}"
    layer, kernel = (DEVICE, f"aclnn{op}_{op}AiCore_{op}") if number % 12 else (HCCL, f"hcom_allReduce__501_{number}_1")
    api = {"Thread Id": 20000, "Mode": "ACL_NN", "level": "acl", "id": f"aclnn{op}", "connection_id": number}
    task = {"Model Id": 4294967295, "Task Type": "AI_CORE", "Stream Id": 2, "Task Id": number, "mindspore_op": launch}
    flow = {"name": f"HostToDevice{number}", "id": str(number), "cat": "HostToDevice"}
    link = {"name": "mindspore_to_npu", "bp": "e", "cat": "async_npu", "id": device}
    at_host, at_cann, at_device = {"pid": HOST, "tid": 20000}, {"pid": CANN, "tid": 20000}, {"pid": layer, "tid": 2}
    return [
        {"ph": "X", "name": launch, **at_host, "ts": host, "dur": "20.000", "cat": "", "args": {}},
        {"name": f"AscendCL@aclnn{op}", **at_cann, "ts": _us(now + 5_000), "dur": 13.0, "args": api, "ph": "X"},
        {
            "name": kernel,
            **at_device,
            "ts": device,
            "dur": rng.randrange(2_000, 900_000) / 1000,
            "args": task,
            "ph": "X",
        },
        {**flow, "ph": "s", **at_cann, "ts": _us(now + 8_000)},
        {**flow, "ph": "f", **at_device, "ts": device, "bp": "e"},
        {**link, "ph": "s", **at_host, "ts": host},
        {**link, "ph": "f", **at_device, "ts": device},
    ]


def kineto_trace(path, events, *, rank, ranks, seed=0):
    """A Kineto trace with about `events` events: CPU operators, launches, and kernels on two streams."""
    rng = random.Random(seed + rank)
    thread = {"pid": 1000 + rank, "tid": 1000 + rank}
    now, found = KINETO_US, [{"ph": "M", "name": "process_name", **thread, "ts": KINETO_US, "args": {"name": "python"}}]
    for number in range(1, events // 3 + 1):
        now += rng.randrange(5, 60)
        found += _kineto_launch(now, number, thread, rng)
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", **thread, "ts": KINETO_US}
    found.append({**step, "dur": now + 2_000 - KINETO_US, "args": {"External id": 0}})
    head = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "device"}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks},
    }
    path.write_text(json.dumps({**head, "traceEvents": found, "traceName": path.name}))


def _kineto_launch(now, number, thread, rng):
    op = ("aten::mm", "aten::add", "aten::native_layer_norm", "c10d::allreduce_")[number % 4]
    stream = 20 if number % 4 == 3 else 7
    kernel = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL" if stream == 20 else f"sm80_gemm_bf16_{number % 40}"
    ids = {"External id": number, "correlation": number}
    place = {"device": 0, "context": 1, "stream": stream, "grid": [128, 1, 1], "block": [256, 1, 1], **ids}
    length = rng.randrange(2_000, 40_000) / 1000
    launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": now + 1.25, "dur": 2.125}
    return [
        {"ph": "X", "cat": "cpu_op", "name": op, **thread, "ts": now, "dur": 4.5, "args": {"External id": number}},
        {"ph": "X", **launch, **thread, "args": {"cbid": 211, **ids}},
        {
            "ph": "X",
            "cat": "kernel",
            "name": kernel,
            "pid": 0,
            "tid": stream,
            "ts": now + 6.5,
            "dur": length,
            "args": place,
        },
    ]
