"""Device tasks of a graph-mode step with recomputation, made by hand; times in microseconds.

Names as MindSpore's profiler writes them on a device: prefix, scope, operator, launched kernel.
"""

import pandas as pd

from tests.analyses.device_tables import BASE_NS
from workbench.tables import KERNELS

NET = "network-Net/layers-CellList"
# what a layer runs in its forward pass: cell and operator, time, shape of the output (float16)
LAYER = (("attention/qkv-Dense/MatMul", 100, "1024,1024"), ("mlp/GeLU", 20, "1024,4096"), ("Add", 10, "1024,1024"))
GRADIENT_US, HEAD_US, OPTIMIZER_US = 200, 50, 30


def layer_tasks(layer, *, marked=True, first=0, kept=("Add",), copy=False):
    """Forward tasks of a layer, or their copies: all but those kept, under higher numbers."""
    top = "recompute_Default" if marked else "Default"
    return [
        (f"{top}/{NET}/{layer}-Layer/{op}-op{first + int(copy)}", us, shape)
        for op, us, shape in LAYER
        if not (copy and op in kept)
    ]


def step_tasks(*, layers=2, marked=(0, 1), copied=None):
    """Names, times and shapes of one step: forward, head, gradients with the copies of each layer before its own."""
    tasks = [("Gradients/Default/network-Net/Grad_Tile/Tile-op0", 1, "1")]  # needs no forward result: runs early
    for layer in range(layers):
        tasks += layer_tasks(layer, marked=layer in marked)
    tasks += [(f"Default/network-Net/head/{op}-op0", HEAD_US, "1024,1024") for op in ("MatMul", "Softmax", "Log")]
    tasks.append(("Gradients/Default/network-Net/head/Grad_MatMul/MatMul-op0", GRADIENT_US, "1024,1024"))
    for layer in reversed(range(layers)):
        if layer in (marked if copied is None else copied):
            tasks += layer_tasks(layer, copy=True)
        top = "Gradients/recompute_Default" if layer in marked else "Gradients/Default"
        tasks.append((f"{top}/{NET}/{layer}-Layer/Grad_MatMul/MatMul-op0", GRADIENT_US, "1024,1024"))
    return [*tasks, ("Default/optimizer-Adam/Adam-op0", OPTIMIZER_US, "1")]


def graph_kernels(*, ranks=(0,), steps=(1, 2), tasks=None, shapes=True, passes=1) -> pd.DataFrame:
    """Table `kernels`: the tasks one after the other in each step; `passes` micro-batches that share their names."""
    rows, run = [], step_tasks() if tasks is None else tasks
    for rank in ranks:
        at = 0
        for step in steps:
            for name, us, shape in run * passes:
                rows.append((rank, step, name, at, us, shape if shapes else None))
                at += us
    frame = pd.DataFrame(rows, columns=["rank_id", "step", "name", "start_us", "duration_us", "output_shapes"])
    return KERNELS.check(
        frame.assign(
            name="Kernel::KernelLaunch::" + frame["name"] + "/aclnnAny_Any_Any",
            window=0, op_type=frame["name"].str.extract(r"([A-Za-z]+)-op\d+$")[0], accelerator_core="AI_CORE",
            is_communication=False, start_ns=BASE_NS + frame["start_us"] * 1000,
            input_shapes="1024,1024", output_dtypes="FLOAT16",
        )
    )  # fmt: skip
