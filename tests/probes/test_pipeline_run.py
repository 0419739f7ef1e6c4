"""Pipelines that raise, yield nothing, never end, or do not answer: each in a process of its own where it must be."""

import subprocess
import sys

import pytest

pytest.importorskip("mindspore")
import mindspore.dataset as ds
import numpy as np

from workbench.errors import PipelineError
from workbench.probes.pipeline_lab import Each, Samples, lab_pipeline
from workbench.probes.pipeline_run import prefetching, run_pipeline
from workbench.probes.pipeline_tree import Setting, named, operators, with_setting

pytestmark = pytest.mark.mindspore


class Broken(Samples):
    def __getitem__(self, index):
        if index == 30:
            raise ValueError("sample 30 is broken")
        return super().__getitem__(index)


def endless():
    while True:
        yield (np.zeros(3, np.float32),)


def generator(source, **options):
    return ds.GeneratorDataset(source, ["sample"], shuffle=False, python_multiprocessing=False, **options)


def test_an_endless_generator_and_a_short_pipeline_are_measured_for_the_time_given():
    run = run_pipeline(generator(endless), 0.3)
    assert run.epoch_rows is None
    assert run.rows > 100
    short = run_pipeline(generator(Samples(count=20)), 0.3)
    assert short.epoch_rows == 20
    assert short.rows > 40  # several epochs


def test_a_pipeline_that_sleeps_takes_as_long_as_it_sleeps():
    run = run_pipeline(generator(Samples(count=1000)).map(Each(sleep, 0.01), ["sample"], num_parallel_workers=1), 0.5)
    assert run.row_us > 9_900
    assert run.cpu_us < run.row_us / 2


def sleep(seconds):
    import time

    time.sleep(seconds)


def test_a_sample_that_raises_is_named_with_its_reason():
    with pytest.raises(PipelineError, match=r"raised after \d+ row\(s\): ValueError: sample 30 is broken\nFix: "):
        run_pipeline(generator(Broken()), 0.5)


def test_an_empty_source_and_a_filter_that_keeps_nothing():
    with pytest.raises(PipelineError, match="source without samples"):
        run_pipeline(generator(Samples(count=0)), 0.3)
    with pytest.raises(PipelineError, match="yields no row"):
        run_pipeline(generator(Samples(count=50)).filter(lambda sample: False, ["sample"]), 0.3)


HANGING = """
import sys, time
import mindspore.dataset as ds
import numpy as np
from workbench.errors import PipelineError
from workbench.probes import pipeline_run
pipeline_run.ANSWER_S = 1.0
class Source:
    def __len__(self): return 100
    def __getitem__(self, index):
        if index == 10: time.sleep(600)
        return (np.zeros(3),)
try:
    pipeline_run.run_pipeline(ds.GeneratorDataset(Source(), ["a"], shuffle=False, python_multiprocessing=False), 0.3)
except PipelineError as error:
    print(error, flush=True)
"""


def test_a_source_that_does_not_answer_is_given_up():
    done = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=120, check=False)
    assert "gave 10 row(s) and then did not answer for 1 s" in done.stdout
    assert "Fix: " in done.stdout


def test_operators_are_named_from_the_sources_on_with_what_can_be_set():
    dataset = lab_pipeline("middle_map").dataset
    found = operators(dataset)
    assert [op.name for op in found] == ["Generator", "Map#1", "Map#2", "Map#3", "Batch"]
    assert [op.runs_python for op in found] == [True, True, True, True, False]
    assert named(dataset, "Map#2").inputs == ("Map#1",)
    branches = operators(lab_pipeline("slow_branch").dataset)
    assert [op.name for op in branches] == ["Generator#1", "Generator#2", "Zip", "Batch"]


def test_a_setting_changes_a_copy_only():
    dataset = lab_pipeline("too_few_workers").dataset
    changed = with_setting(dataset, Setting(workers={"Map": 2}, processes={"Map": True}))
    assert (named(changed, "Map").workers, named(changed, "Map").processes) == (2, True)
    assert (named(dataset, "Map").workers, named(dataset, "Map").processes) == (1, False)
    dataset.__model_hash__ = 7  # as Model.train leaves it
    assert not hasattr(with_setting(dataset, Setting()), "__model_hash__")
    before = ds.config.get_prefetch_size()
    with prefetching(3):
        assert ds.config.get_prefetch_size() == 3
    assert ds.config.get_prefetch_size() == before


def test_joined_maps_yield_the_same():
    dataset = generator(Samples(count=10)).map(double, ["sample"]).map(double, ["sample"]).batch(5)
    joined = with_setting(dataset, Setting(fuse_maps=True))
    assert [op.op_type for op in operators(joined)] == ["Generator", "Map", "Batch"]
    rows = [[row[0] for row in d.create_tuple_iterator(num_epochs=1, output_numpy=True)] for d in (dataset, joined)]
    np.testing.assert_array_equal(rows[0], rows[1])


def double(sample):
    return 2 * sample
