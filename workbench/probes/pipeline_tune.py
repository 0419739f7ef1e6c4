"""Find a better setting of a data pipeline by measuring its operators, apply it, and measure again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mindspore.dataset as ds
import numpy as np
import pandas as pd

from workbench.analyses.pipeline_rates import Machine, Setting
from workbench.analyses.pipeline_tuning import predict, recommend
from workbench.probes.pipeline_autotune import autotuned
from workbench.probes.pipeline_run import PipelineRun, prefetching, run_pipeline
from workbench.probes.pipeline_services import SECONDS_EACH, PipelineServices, cores, measure_services
from workbench.probes.pipeline_tree import with_setting

MEASURE_SECONDS = 1.0
ROUNDS = 2  # settings are measured in turn, so that what else the machine does hits all alike
TRIED = 3  # settings that the model holds for equally good
WORTH_SHARE = 0.02  # a dearer setting has to gain more than this


@dataclass(frozen=True)
class Tuning:
    """What tuning found.

    `recommended` is the setting, `dataset` a copy of the pipeline that has it (create its iterators under
    `prefetching(recommended.prefetch_size)`), `table` the predictions beside the measurements: setting, batch_us,
    low_us, high_us, bound, source (now, workbench,
    AutoTune), measured_us (best of the rounds), clean_us (without what other programs took), cost,
    queue_bytes, is_recommended.
    """

    services: PipelineServices
    recommended: Setting
    dataset: ds.Dataset
    table: pd.DataFrame
    machine: Machine

    @property
    def gain(self) -> float:
        """Measured throughput with the recommended setting over that before."""
        now = self.table.loc[self.table["is_recommended"], "measured_us"].iloc[0]
        return float(self.table["measured_us"].iloc[0] / now)


def tune(
    dataset: ds.Dataset,
    *,
    step_us: float = 0.0,
    step_cpu_us: float = 0.0,
    seconds_each: float = SECONDS_EACH,
    with_autotune: bool = False,
    progress: Callable[[str], None] = lambda _what: None,
) -> Tuning:
    """Measure a pipeline's operators, choose a setting, apply it to a copy and measure both.

    Args:
        dataset: the pipeline that yields batches; it is not changed.
        step_us: time of a training step without waiting for data; 0 asks for the highest throughput.
        step_cpu_us: processor time of this process in a step (on a CPU, training takes cores from the pipeline).
        seconds_each: for each run of one operator.
        with_autotune: let MindSpore's AutoTune choose a setting, too, and measure it beside the others.
        progress: called with what is measured next.

    Raises:
        PipelineError: the pipeline raises, yields nothing, or does not answer.
    """
    services = measure_services(dataset, seconds_each=seconds_each, progress=progress)
    machine = Machine(cores=cores(), step_us=step_us, step_cpu_us=step_cpu_us)
    before = ds.config.get_prefetch_size()
    options = recommend(services.table, services.intervals_us, machine, prefetch_size=before)
    settings = [Setting(prefetch_size=before), *options[:TRIED]]
    if with_autotune:
        progress("what AutoTune chooses")
        settings.append(autotuned(dataset, step_us=step_us))
    predicted = predict(services.table, services.intervals_us, machine, settings)
    measured = measure_settings(dataset, settings, step_us=step_us, progress=progress)
    table = pd.concat([predicted, measured], axis=1)
    chosen = _cheapest(table.iloc[: 1 + len(options[:TRIED])])
    recommended = settings[chosen]
    sources = ["now", *["workbench"] * len(options[:TRIED]), *["AutoTune"] * with_autotune]
    return Tuning(
        services=services,
        recommended=recommended,
        dataset=with_setting(dataset, recommended),
        table=table.assign(source=sources, is_recommended=np.arange(len(table)) == chosen),
        machine=machine,
    )


def measure_settings(
    dataset: ds.Dataset,
    settings: Sequence[Setting],
    *,
    step_us: float = 0.0,
    seconds: float = MEASURE_SECONDS,
    rounds: int = ROUNDS,
    progress: Callable[[str], None] = lambda _what: None,
) -> pd.DataFrame:
    """Time between batches under each setting, in turn, several times.

    Args:
        dataset: the pipeline; it is not changed.
        settings: what to apply.
        step_us: pause after each batch, as training would make.
        seconds: for each run.
        rounds: how often each is measured; the best counts, as disturbances only ever take time.
        progress: called with the setting that comes next.

    Returns:
        One row per setting: measured_us, clean_us (without what other programs took), stolen_share; missing where the
        pipeline does not run with it.
    """
    runs: dict[int, list[PipelineRun]] = {i: [] for i in range(len(settings))}
    for _round in range(rounds):
        for i, setting in enumerate(settings):
            progress(str(setting))
            with prefetching(setting.prefetch_size):
                runs[i].append(
                    run_pipeline(
                        with_setting(dataset, setting), seconds, step_us=step_us, what=f"the pipeline ({setting})"
                    )
                )
    best = [min(of_setting, key=lambda run: run.row_us) for of_setting in runs.values()]
    return pd.DataFrame(
        {
            "measured_us": [run.row_us for run in best],
            "clean_us": [run.clean_row_us for run in best],
            "stolen_share": [run.stolen_share for run in best],
        }
    )


def apply(dataset: ds.Dataset, setting: Setting) -> ds.Dataset:
    """A copy of the pipeline with the setting; sets MindSpore's prefetch size for the pipelines of this process."""
    if setting.prefetch_size is not None:
        ds.config.set_prefetch_size(setting.prefetch_size)
    return with_setting(dataset, setting)


def _cheapest(table: pd.DataFrame) -> int:
    """The cheapest of the settings that were measured to be as good as the best."""
    good = table[table["clean_us"] <= float(table["clean_us"].min()) * (1 + WORTH_SHARE)]
    return int(good.sort_values(["cost", "clean_us"], kind="stable").index[0])
