"""Two runs that part: real trainings that differ in one setting of the optimizer, and curves that are added by hand."""

import json

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.log_text import write_logs
from tests.rendered_logs import megatron, mindformers, series
from workbench.analyses.loss_parting import parting
from workbench.findings.checks import conclude, examine
from workbench.tables import TRAINING_STEPS

CAUSE = "precision_or_optimizer_mismatch"
YAML = "optimizer:\n  type: {optimizer}\n  betas: [0.9, {beta2}]\n  eps: {eps}\n  weight_decay: 0.1\n"
YAML += "model:\n  model_config:\n    compute_dtype: {dtype}\n    seq_length: {length}\noutput_dir: {out}\n"
PLAIN = {"optimizer": "AdamW", "beta2": 0.95, "eps": "1.e-8", "dtype": "bfloat16", "length": 4096, "out": "./a"}


def yaml(**changes):
    return YAML.format(**PLAIN | changes)


def recorded(data_samples, name):
    """Steps of a real training as `series` gives them."""
    lines = (data_samples / name / "train.jsonl").read_text().splitlines()
    frame = pd.DataFrame([json.loads(line) for line in lines])
    return series(frame["step"], loss=frame["loss"], lr=frame["learning_rate"], norm=frame["grad_norm"])


def found(folder, files):
    return [f for f in wb.diagnose(write_logs(folder, files)).causes if f.cause == CAUSE]


def facts(finding):
    return {e.fact: e.value for e in finding.evidence}


def arguments(**changes):
    """Megatron-LM's list of arguments."""
    told = {"adam_beta1": 0.9, "adam_beta2": 0.95, "adam_eps": 1e-8, "bf16": True, "fp16": False, "seq_length": 4096,
            "optimizer": "adam", "weight_decay": 0.1} | changes  # fmt: skip
    return "------------------------ arguments ------------------------\n" + "".join(
        f"  {name} {'.' * (48 - len(name))} {value}\n" for name, value in told.items()
    )


def test_two_real_trainings_that_differ_in_epsilon(data_samples):
    verdict = wb.diagnose(data_samples / "optimizer_mismatch")
    one = verdict.causes[0]
    assert (one.cause, one.sub_cause, one.confidence, one.severity) == (CAUSE, "epsilon", "high", "critical")
    assert "epsilon is 0.01 instead of 1e-08" in one.title
    known = facts(one)
    losses = [
        [json.loads(line)["loss"] for line in (data_samples / "optimizer_mismatch" / n / "train.jsonl").open()]
        for n in ("reference", "epsilon")
    ]
    at_the_end = [sum(part[-48:]) / 48 for part in losses]  # 240 / 5 steps
    assert known["gap of the losses at the end"] == pytest.approx(at_the_end[1] - at_the_end[0], abs=1e-9)
    assert known["gap against the loss of the first run"] == pytest.approx(at_the_end[1] / at_the_end[0] - 1)
    assert known["settings that agree"] == 20  # lines of config.yaml, less one
    assert one.steps.first < 24  # the warm-up
    assert {r.cause for r in one.rules_out} == {"learning rate", "data order", "noise"}


def test_two_seeds_of_one_training_are_silent(data_samples):
    assert wb.diagnose(data_samples / "two_seeds").causes == ()


def test_the_same_training_twice_is_silent(data_samples, tmp_path):
    frame = recorded(data_samples, "optimizer_mismatch/reference")
    other = frame.assign(
        ms=1010.0, loss=frame["loss"] * (1 + 1e-4 * np.sin(frame["step"]))
    )  # reductions in other order
    logs = {"a/train.log": mindformers(frame, planned=240), "b/train.log": mindformers(other, planned=240)}
    configurations = {"a/config.yaml": yaml(), "b/config.yaml": yaml(eps="1.e-3", out="./b")}
    assert found(tmp_path / "same", logs | {"a/config.yaml": yaml(), "b/config.yaml": yaml(out="./b")}) == []
    assert found(tmp_path / "not told", logs) == []
    assert found(tmp_path / "no effect", logs | configurations) == []


@pytest.mark.parametrize("writer", [mindformers, megatron])
def test_real_losses_in_the_words_of_other_writers(data_samples, tmp_path, writer):
    logs = {
        f"{n}.log": writer(recorded(data_samples, f"optimizer_mismatch/{n}"), planned=240)
        for n in ("reference", "epsilon")
    }
    told = {"reference.yaml": yaml(), "epsilon.yaml": yaml(eps="1.e-2", out="./b")}
    (one,) = found(tmp_path / "yaml", logs | told)
    assert (one.confidence, one.sub_cause) == ("high", "epsilon")
    assert "epsilon (eps) is 0.01 instead of 1e-08" in one.title
    assert facts(one)["gap of the losses at the end"] == pytest.approx(0.444, abs=0.001)
    (one,) = found(tmp_path / "arguments", {
        "reference.log": arguments() + logs["reference.log"],
        "epsilon.log": arguments(adam_eps=0.01) + logs["epsilon.log"],
    })  # fmt: skip
    assert facts(one)["differs: epsilon (adam_eps)"] == "1e-08 in reference.log, 0.01 in epsilon.log"


def pair(data_samples, folder, *, second=None, writer=mindformers, first_yaml=None, second_yaml=None, **columns):
    """Findings on the real pair, with changes: of the second training's columns, and of what the settings tell."""
    frames = [recorded(data_samples, f"optimizer_mismatch/{n}") for n in ("reference", "epsilon")]
    frames[1] = (frames[1] if second is None else second).assign(**columns)
    files = {"a_ref.log": writer(frames[0], planned=240), "b_candidate.log": writer(frames[1], planned=240)}
    files |= {"a_ref.yaml": first_yaml} if first_yaml else {}
    files |= {"b_candidate.yaml": second_yaml} if second_yaml else {}
    return found(folder, files)


def test_less_sure_where_more_differs_or_one_side_is_not_told(data_samples, tmp_path):
    (one,) = pair(data_samples, tmp_path / "two", first_yaml=yaml(), second_yaml=yaml(eps="1.e-2", dtype="float16"))
    assert (one.confidence, one.sub_cause) == ("medium", "several_settings")
    assert "compute type (compute_dtype) is float16 instead of bfloat16" in one.title
    other = yaml(eps="1.e-2") + "parallel:\n  expert_parallel: 4\n"
    (one,) = pair(data_samples, tmp_path / "other", first_yaml=yaml() + "parallel:\n  expert_parallel: 8\n",
                  second_yaml=other)  # fmt: skip
    assert (one.confidence, facts(one)["other settings that differ"]) == ("medium", "parallel.expert_parallel")
    (one,) = pair(data_samples, tmp_path / "one side", second_yaml=yaml(eps="1.e-2"))
    assert (one.confidence, one.severity, one.sub_cause) == ("medium", "critical", "settings_not_recorded")
    assert any(f.startswith("not known: precision and optimizer settings of a_ref.log; put ") for f in facts(one))
    (one,) = pair(data_samples, tmp_path / "neither")
    assert (one.confidence, one.severity) == ("low", "info")


def test_what_another_difference_explains_is_silent(data_samples, tmp_path):
    told = {"first_yaml": yaml(), "second_yaml": yaml(eps="1.e-2")}
    assert pair(data_samples, tmp_path / "a", **told) != []
    rates = recorded(data_samples, "optimizer_mismatch/epsilon")["lr"]
    assert pair(data_samples, tmp_path / "rate", lr=0.9 * rates, **told) == []
    length = {"first_yaml": yaml(), "second_yaml": yaml(eps="1.e-2", length=2048)}
    assert pair(data_samples, tmp_path / "length", **length) == []
    same = {"first_yaml": yaml(), "second_yaml": yaml(eps="0.00000001", optimizer="adamw", out="./b")}
    assert pair(data_samples, tmp_path / "same settings", **same) == []
    other_network = {"norm": 1.3 * recorded(data_samples, "optimizer_mismatch/epsilon")["norm"]}
    assert pair(data_samples, tmp_path / "network", **other_network, **told) == []
    seed_2 = recorded(data_samples, "two_seeds/seed_2")
    assert pair(data_samples, tmp_path / "seed", second=seed_2, **told) == []


def test_an_untold_setting_asks_for_one_begin(data_samples, tmp_path):
    apart = 1.002 * recorded(data_samples, "optimizer_mismatch/epsilon")["loss"]  # 0.2 % at the first step
    (one,) = pair(data_samples, tmp_path / "told", loss=apart, first_yaml=yaml(), second_yaml=yaml(eps="1.e-2"))
    assert one.confidence == "high"
    assert pair(data_samples, tmp_path / "not told", loss=apart, second_yaml=yaml(eps="1.e-2")) == []


def test_a_better_later_run_is_only_told(data_samples, tmp_path):
    frames = [recorded(data_samples, f"optimizer_mismatch/{n}") for n in ("epsilon", "reference")]
    files = {"old.log": mindformers(frames[0], planned=240), "new.log": mindformers(frames[1], planned=240),
             "old.yaml": yaml(eps="1.e-2"), "new.yaml": yaml()}  # fmt: skip
    (one,) = found(tmp_path, files)
    assert (one.severity, one.confidence) == ("info", "high")
    assert " below that of old.log" in one.title


def test_the_playbook_on_losses_ends_with_it(data_samples):
    verdict = conclude(examine(data_samples / "optimizer_mismatch"), "T1")
    assert verdict.sentence.startswith(f"The cause is {CAUSE}: ")
    clear = conclude(examine(data_samples / "two_seeds"), "T1")
    assert next(c.verdict for c in clear.checks if c.cause == CAUSE) == "not the cause"


def steps(loss, rate=1e-4):
    number = np.arange(1, len(loss) + 1)
    frame = pd.DataFrame({"rank_id": 0, "step": number, "loss": loss, "learning_rate": rate, "loss_finite": True})
    return TRAINING_STEPS.check(frame.reindex(columns=list(TRAINING_STEPS.column_names)))


def curve(count=200, seed=0):
    """A falling loss with the scatter of its batches."""
    return 2 + 3 * np.exp(-np.arange(count) / 40) + np.random.default_rng(seed).normal(0, 0.05, count)


def test_the_parting_of_curves_added_by_hand():
    number = np.arange(1, 201)
    apart = np.clip(number - 100, 0, None) * 0.002  # from step 101 on; 0.002 to 0.2 nats
    parted = parting(steps(curve()), steps(curve() + apart))
    assert parted.gap.value == pytest.approx(0.002 * np.mean(np.arange(61, 101)))  # steps 161 to 200
    assert parted.gap.low < parted.gap.value < parted.gap.high
    # a tenth of the gap (0.0161) is passed by 0.002 * (step - 100) at step 109
    assert parted.onset_step == 109
    assert parted.noise == pytest.approx(0, abs=1e-9)
    assert parted.order_correlation == pytest.approx(1, abs=0.01)
    assert (parted.steps, parted.start_share, parted.rates_differ) == (200, 0, False)


@pytest.mark.parametrize(
    "second",
    [
        curve(),
        curve() + 0.3 * np.exp(-(((np.arange(200) - 60) / 20) ** 2)),  # apart for a while, together again
        curve() + 0.5 * (np.arange(200) > 185),  # at the very end only
        curve() + 0.2,  # apart from the beginning: another network or other data
        curve()[:39] + np.arange(39) * 0.01,
        curve(seed=1),
    ],
)
def test_curves_that_do_not_part_for_good(second):
    assert parting(steps(curve()), steps(second)) is None


def test_printed_rates():
    apart = curve() + np.arange(200) * 0.002
    assert parting(steps(curve()), steps(apart, rate=0.9e-4)).rates_differ is True
    once = np.where(np.arange(200) == 50, 9.0, 1e-4)
    assert parting(steps(curve()), steps(apart, rate=once)).rates_differ is False
    assert parting(steps(curve()), steps(apart, rate=np.nan)).rates_differ is None
