"""Let MindSpore's AutoTune work on a pipeline, and read what it chose."""

from __future__ import annotations

import tempfile
from pathlib import Path

import mindspore.dataset as ds

from workbench.analyses.pipeline_rates import Setting
from workbench.analyses.pipeline_tuning import setting_of
from workbench.errors import PipelineError
from workbench.probes.pipeline_run import run_pipeline
from workbench.probes.pipeline_tree import operators
from workbench.readers.autotune import read_autotune

INTERVAL_BATCHES = 20


def autotuned(dataset: ds.Dataset, *, seconds: float = 6.0, step_us: float = 0.0) -> Setting:
    """The setting that AutoTune ends with after this time.

    Args:
        dataset: a pipeline; it is not changed.
        seconds: AutoTune needs some hundred batches.
        step_us: pause after each batch, as training would make.

    Raises:
        PipelineError: the pipeline fails, or AutoTune wrote no choice.
    """
    before = ds.config.get_autotune_interval()
    with tempfile.TemporaryDirectory() as folder:
        ds.config.set_enable_autotune(True, str(Path(folder) / "tuned"))
        ds.config.set_autotune_interval(INTERVAL_BATCHES)
        try:
            run_pipeline(dataset, seconds, step_us=step_us, what="the pipeline under AutoTune")
        finally:
            ds.config.set_autotune_interval(before)
            ds.config.set_enable_autotune(False)
        written = sorted(Path(folder).glob("tuned_*.json"))
        if not written:
            raise PipelineError("AutoTune wrote no file: it saw too few batches.", fix="give more seconds")
        chosen = read_autotune(written[0])
    known = {op.name for op in operators(dataset)}
    setting = setting_of(chosen)
    workers = {name: n for name, n in setting.workers.items() if name in known}
    return Setting(workers=workers, prefetch_size=setting.prefetch_size)
