from pathlib import Path

import pytest

from workbench.analyses.training_settings import PRECISION_AND_OPTIMIZER, differences, plain, what_is

DOCS = Path(__file__).parents[2] / "docs" / "setting_names.md"


@pytest.mark.parametrize("what", PRECISION_AND_OPTIMIZER)
def test_documentation_has_the_whole_table(what):
    names = " ".join(f"`{name}`" for name in PRECISION_AND_OPTIMIZER[what])
    assert f"| {what} | {names} |" in DOCS.read_text().splitlines()


def test_no_name_stands_for_two_settings():
    names = [name for names in PRECISION_AND_OPTIMIZER.values() for name in names]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("config.optimizer.eps", "epsilon"), ("adam-eps", "epsilon"), ("model.rms_norm.eps", None),
        ("rms_norm_eps", None), ("optimizer.type", "optimizer"), ("runner.type", None), ("bn.momentum", None),
        ("model.model_config.softmax_compute_dtype", "softmax type"), ("bf16", "compute type"),
    ],
)  # fmt: skip
def test_what_a_name_is(name, what):
    assert what_is(name) == what


@pytest.mark.parametrize(
    ("a", "b"),
    [("1e-8", "1.0E-08"), ("True", "true"), ("torch.bfloat16", "bf16"), ("mstype.fp16", "float16"), ("1", "1.0")],
)
def test_spellings_of_one_value(a, b):
    assert plain(a) == plain(b)


def test_differences_by_what_they_bear_on():
    first = {"optimizer.betas": "[0.9, 0.95]", "eps": "1e-8", "seed": "1", "lr": "1e-4", "seq_length": "4096",
             "save_dir": "/a", "recompute": "full", "weight_decay": "0.1", "log.planned_steps": "9"}  # fmt: skip
    second = {"beta1": "0.90", "beta2": "0.99", "adam_eps": "1e-6", "seed": "2", "lr": "1e-5", "seq_length": "2048",
              "save_dir": "/b", "recompute": "none", "log.planned_steps": "8", "clip_grad": "1.0"}  # fmt: skip
    found = differences(first, second)
    assert found.changed == (("beta2", "beta2", "0.95", "0.99"), ("epsilon", "epsilon", "1e-08", "1e-06"))
    assert found.one_sided == (("weight decay", 0, "0.1"), ("gradient clipping", 1, "1"))
    assert found.known == (4, 4)  # beta1, beta2, epsilon, and weight decay or clipping
    assert (found.rate, found.data, found.other_job, found.others) == (
        ("lr",),
        ("seed",),
        ("seq_length",),
        ("recompute",),
    )
    assert found.same == 0  # beta1 stands under two names
