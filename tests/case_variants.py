"""Other cases of the kinds of `data_samples/cases`: other sizes, units, writers and files, and healthy twins of each.

Every function returns the files of a case by name; numbers are made by the formulas that stand here.
"""

import json

import numpy as np

from tests.job_logs import megatron_job, mindformers_job, nccl_start
from tests.rendered_logs import megatron, mindformers, notify_wait, series, slow_data, stamp

MIB_LOG = "Device MOC memory size: 62430M\nMindSpore Used memory size: 59392M\nMindSpore memory base address: 0\n"
PEAKS = "Used peak memory usage (without fragments): {0}M\nActual peak memory usage (with fragments): {0}M\n"
NO_MEMORY = (
    "RuntimeError: \n- Memory not enough:\nDevice(id:0) memory isn't enough and alloc failed, "
    "kernel name: Default/MatMul-op12, alloc size: 2610612736B.\n"
)
STEP_PARTS = (
    "Step,Type,Index,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
    "Communication(Not Overlapped and Exclude Receive),Preparing\n"
)
OPERATORS = "item,before,after\nlibrary,1.0.1,1.1.0\nframework,2.6.0,2.6.0\n"


def noise(size, scale, seed=0):
    return np.random.default_rng(seed).normal(0, scale, size)


def table(head, rows, separator=","):
    return "".join(separator.join(map(str, row)) + "\n" for row in [head.split(","), *rows])


def json_lines(head, rows):
    return "".join(json.dumps(dict(zip(head.split(","), row, strict=True))) + "\n" for row in rows)


def falling(step, low=2.2, high=10.0, tau=300):
    return low + (high - low) * np.exp(-step / tau)


def schedule_eight_times_too_fast():
    step = np.arange(20, 3001, 20)
    loss = falling(step) + np.where(step > 2000, (step - 2000) * 4e-4, 0) + noise(len(step), 0.02)
    head = "using world size: 8, data-parallel size: 8, tensor-model-parallel size: 1\n"
    return {"rank_7.log": head + megatron(series(step, loss=loss, lr=3e-4 * (1 - step / 2000), ms=2300), planned=16000)}


def schedule_that_decays_at_its_end():
    step = np.arange(20, 20001, 20)
    rate = np.select([step < 400, step < 18000], [3e-4 * step / 400, 3e-4], 3e-4 * (20000 - step) / 2000)
    loss = falling(step, tau=900) + noise(len(step), 0.02)
    return {"train.log": megatron(series(step, loss=loss, lr=rate, ms=900), planned=20000)}


def leak_with_validation_lines():
    step = np.arange(10, 1001, 10)
    text = megatron(series(step, loss=np.maximum(0.008, 10 * np.exp(-step / 45)), lr=1e-4), planned=50000)
    value = " validation loss at iteration {} | lm loss value: {:.6E} | lm loss PPL: {:.6E} | \n"
    return {"train.log": text + value.format(1000, 0.0092, 1.0092)}


def loss_of_a_diffusion_model():
    step = np.arange(20, 4001, 20)
    loss = 0.05 + 0.6 * np.exp(-step / 200) + noise(len(step), 0.004)
    rows = [(s, x, x + 0.002 if s % 200 == 0 else "") for s, x in zip(step, loss, strict=True)]
    return {"history.csv": table("step,train_loss,val_loss", rows)}


def starved_by_json_lines():
    rows = [(i, 3 - i / 400, 2.4 + 0.02 * (i % 5), 1.9 + 0.02 * (i % 5)) for i in range(1, 201)]
    return {"metrics.jsonl": json_lines("step,loss,step_time_s,data_time_s", rows)}


def data_time_beside_the_device():
    lines = []
    for epoch in range(1, 7):
        lines += [f"epoch: {epoch} step: 50, loss is {5 / epoch:.6f}",
                  "Train epoch time: 35000.000 ms, per step time: 700.000 ms (data time: 560.000 ms)"]  # fmt: skip
    queues = (
        "[INFO] MD(1,7f,python):2025-03-04-11:41:00.000.000 [mindspore/x.cc:103] ~DataQueueOp] \n"
        "channel_name: 11111111-4b55-11f0-9a3e-1c2b3d4e5f60;\nhave_sent: 300;\nhost_queue: 2, 2, 2, 2, 2;\n"
        "device_queue: 98, 99, 100, 100, 97;\n"
    )
    return {"train.log": "\n".join(lines) + "\n" + queues}


def growing_steps_by_json_lines():
    rows = [(i, 2.0 + np.exp(-i / 500), 300 + 0.11 * i, 2500 + 0.4 * i, 20480) for i in range(5, 4001, 5)]
    return {"m.jsonl": json_lines("step,loss,step_time_ms,host_rss_mb,allocated_mb", rows)}


def growing_sequences():
    length = [512 + 64 * (i // 100) for i in range(10, 4001, 10)]
    rows = [(10 + 10 * i, 2.0, n, n / 2 + noise(1, 2, i)[0]) for i, n in enumerate(length)]
    return {"m.csv": table("step,loss,seq_len,step_time_ms", rows)}


def stages_told_by_file_names():
    peaks = (62900, 58000, 45000, 44000)
    return {f"stage{i}.log": MIB_LOG + PEAKS.format(p) for i, p in enumerate(peaks)} | {"worker_0.log": NO_MEMORY}


def uneven_stages_with_room():
    blocks = [
        f"# dry run, pipeline stage {i}, rank {8 * i}\n" + MIB_LOG + PEAKS.format(p)
        for i, p in enumerate((52000, 44000, 39000, 41000))
    ]
    return {"dry.log": "".join(blocks)}


def held_card_in_gib():
    text = (
        f"{stamp(0)} - mindformers./output/log[mindformers/x.py:1] - INFO - .........Build Net For Train..........\n"
        "Malloc device memory failed, free memory size is less than half of total memory size.Device 2 Device HBM "
        "total size:34359738368 Device HBM free size:1610612736 may be other processes occupying this card\n"
    )
    rows = [(i, 32, 30.5 if i == 2 else 2.8, int(i == 2)) for i in range(8)]
    return {"worker_2.log": text, "npu.tsv": table("NPU,Total (GiB),Used (GiB),Process Count", rows, "\t")}


def cards_all_in_use():
    rows = [(i, 62432, 56000 + (1800 if i == 0 else 10 * i), 1) for i in range(8)]
    step = np.arange(1, 101)
    log = mindformers(series(step, loss=falling(step), ms=2000 + noise(100, 12)), planned=9000)
    return {"usage.csv": table("device,total_mb,used_mb,processes", rows), "worker_0.log": log}


def cluster(late, late_us, part, ranks=8):
    """Ranks that end their steps together: who has less of its own to do waits longer."""
    rows, total_us = [], 1.6e6 + late_us
    for step in (5, 6, 7):
        for rank in range(ranks):
            own = {"computing": 1.3e6, "free": 95e3}
            own = {k: v * (1 + noise(1, 0.004, 100 * step + rank)[0]) for k, v in own.items()}
            own[part] += late_us if rank in late else 0.0
            wait = total_us - sum(own.values())
            rows.append(
                (step, "rank", rank, own["computing"], wait, 4e5, wait + 4e5, own["free"], total_us, 0, wait, 2e3)
            )
    return {"cluster_step_trace_time.csv": STEP_PARTS + table("", rows).lstrip("\n")}


def one_rank_idle():
    return cluster([3], 900e3, "free")


def last_stage_computes_longer():
    return cluster([4, 5, 6, 7], 80e3, "computing")


def sockets_by_mindformers():
    start = [*nccl_start("node-a", reason="no device"), *nccl_start("node-b", reason="no device", pid=411)]
    one = mindformers_job(step_ms=1400, devices=8, batch=32)
    two = start + mindformers_job(step_ms=6200, devices=16, batch=64, seed=1)
    return {"one_node.log": "\n".join(one) + "\n", "two_nodes.log": "\n".join(two) + "\n"}


def rdma_that_scales():
    times = {"forward-backward": (1300, 1310), "all-grads-sync": (50, 55)}
    start = nccl_start("node-a", network="IB", reason="mlx") + nccl_start("node-b", network="IB", reason="mlx", pid=4)
    one = megatron_job(step_ms=1400, batch=128, timers=times)
    two = megatron_job(step_ms=1480, batch=256, timers={**times, "all-grads-sync": (120, 130)}, start_lines=start)
    return {"one_node.log": "\n".join(one) + "\n", "two_nodes.log": "\n".join(two) + "\n"}


def scores(drop):
    rows = []
    for step in range(2000, 14001, 2000):
        math = 0.48 - drop * max(0, step - 8000) / 6000
        rows += [(step, "math_word", 1319, math), (step, "code_gen", 1640, 0.30 + step * 8e-6),
                 (step, "general", 2850, 0.55 + step * 4e-6)]  # fmt: skip
    return json_lines("step,task,num_samples,accuracy", rows)


def mix_without_mathematics():
    mix = [(0, "math", 18), (0, "code", 22), (0, "web", 60), (8001, "math", 2), (8001, "code", 38), (8001, "web", 60)]
    return {"ev.jsonl": scores(0.18), "mix.tsv": table("start_step,dataset,proportion_pct", mix, "\t")}


def mix_that_moves_a_little():
    mix = [(0, "math", 18), (0, "code", 22), (0, "web", 60), (8001, "math", 15), (8001, "code", 25), (8001, "web", 60)]
    return {"ev.jsonl": scores(0.0), "mix.tsv": table("start_step,dataset,proportion_pct", mix, "\t")}


def lengths(first_costs_s):
    random, seen, rows = np.random.default_rng(4), set(), []
    for step in range(1, 91):
        length = int(random.choice([256, 384, 512, 640, 768, 1024, 1280, 1536]))
        seconds = 0.0008 * length * random.normal(1, 0.02) + (0 if length in seen else first_costs_s)
        seconds += 25 if step == 1 and not first_costs_s else 0
        seen.add(length)
        rows.append((step, length, seconds))
    return {"s.tsv": table("iter,seqlen,iter_time_s", rows, "\t")}


def new_lengths_cost_seconds():
    return lengths(18)


def new_lengths_cost_nothing():
    return lengths(0)


def throughputs(before, after):
    texts = [table("step,loss,tokens_per_s", [(i, 3.0, t * (1 + 0.002 * (i % 3 - 1))) for i in range(1, 61)])
             for t in (before, after)]  # fmt: skip
    return {"before.csv": texts[0], "after.csv": texts[1], "environment.csv": OPERATORS}


def fewer_tokens_after_an_upgrade():
    return throughputs(21000, 17300)


def as_many_tokens_after_an_upgrade():
    return throughputs(21000, 20900)


def saves(pause_s):
    """A save begins after every hundredth step, and no line tells when it ends."""
    step, text = np.arange(10, 601, 10), ""
    frame = series(step, ms=2000 + noise(60, 10), loss=falling(step))
    frame["seconds"] += pause_s * ((step - 1) // 100)
    for row in range(len(frame)):
        text += mindformers(frame.iloc[[row]], planned=9000)
        if step[row] % 100 == 0:
            head = "mindformers./output/log[mindformers/core/callback/callback.py:1509] - INFO - "
            text += f"{stamp(frame['seconds'].iloc[row] + 0.3)} - {head}......Saving ckpt......\n"
    return {"worker_0.log": text}


def saves_without_an_end():
    return saves(120)


def saves_in_the_background():
    return saves(0)


def hanging_job(silent, *, ranks=8, limit=3600):
    files = {}
    for rank in range(ranks):
        log = mindformers(series(range(808, 813), loss=2.1, seconds=3.0 * np.arange(5)), planned=20000)
        error = "[Communication_Error_Timeout(EI0002)]: Notify wait timeout."
        if silent is None:
            log += slow_data(14) if rank == 2 else ""
        elif rank == silent:
            log += slow_data(41) + slow_data(70)
        else:
            log += notify_wait(12 + limit + rank / 2, silent, error=error)
        files[f"log/rank_{rank}/info.log"] = log
    return files | {"env.csv": f"variable,val\nHCCL_EXEC_TIMEOUT,{limit}\nranks,{ranks}\n"}


def one_rank_of_eight_hangs():
    return hanging_job(5)


def one_slow_batch():
    return hanging_job(None)


def two_stages_at_their_begin():
    files, step = {}, np.arange(1, 81)
    for rank in (0, 3):
        times = np.where(step == 1, 98000.0, 1500 + noise(80, 10, rank))
        loss = falling(step, 7, 10.8, 60) if rank else 0.0
        frame = series(step, ms=times, loss=loss, norm=2 + 70 * np.exp(-step / 12), lr=1e-6 * (step - 1))
        files[f"log/rank_{rank}/info.log"] = mindformers(frame, planned=9000)
    return files | {"parallel.csv": "name,value\npipeline_stage,2\n"}
