"""Settings of two runs -> those of precision and optimizer that differ, and those that explain a difference otherwise.

`PRECISION_AND_OPTIMIZER` is the one table of their names in the configurations of MindFormers, Megatron-LM, Hugging
Face and the Recorder; docs/setting_names.md shows it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

PRECISION_AND_OPTIMIZER: Mapping[str, tuple[str, ...]] = {  # what it is -> last parts of its names
    "compute type": ("compute_dtype", "compute_type", "torch_dtype", "model_dtype", "mixed_precision", "amp_level",
                     "precision_mode", "bf16", "fp16", "fp8", "params_dtype"),
    "parameter type": ("param_init_type", "param_init_dtype", "param_dtype"),
    "layer norm type": ("layernorm_compute_type", "layernorm_compute_dtype", "layernorm_dtype"),
    "softmax type": ("softmax_compute_type", "softmax_compute_dtype", "attention_softmax_in_fp32"),
    "rotary type": ("rotary_dtype",),
    "router type": ("router_dense_type", "moe_router_dtype"),
    "residual type": ("residual_dtype", "fp32_residual_connection"),
    "gradient accumulation type": ("accumulate_allreduce_grads_in_fp32", "grad_reduce_in_fp32", "main_grads_dtype",
                                   "gradient_accumulation_dtype"),
    "master weights": ("fp32_master_weights", "master_weights", "main_params_dtype"),
    "optimizer state type": ("exp_avg_dtype", "exp_avg_sq_dtype", "optimizer_state_dtype"),
    "loss scale": ("loss_scale", "initial_loss_scale", "init_loss_scale", "loss_scale_value", "scale_sense"),
    "query-key scaling": ("apply_query_key_layer_scaling",),
    "short matrix products": ("allow_tf32", "allow_hf32", "matmul_allow_hf32", "conv_allow_hf32"),
    "optimizer": ("optimizer", "optim", "optimizer_type", "optimizer_name", "optimizer.type"),
    "beta1": ("beta1", "adam_beta1"),
    "beta2": ("beta2", "adam_beta2"),
    "epsilon": ("epsilon", "eps", "adam_eps", "adam_epsilon"),
    "weight decay": ("weight_decay", "adam_weight_decay"),
    "momentum": ("momentum", "sgd_momentum"),
    "gradient clipping": ("clip_grad", "clip_norm", "max_grad_norm", "use_clip_grad"),
}  # fmt: skip
_RATE = (
    "learning_rate lr peak_learning_rate max_lr min_lr lr_end schedule lr_schedule.type lr_decay_style lr_decay_iters "
    "lr_decay_steps lr_warmup_iters lr_warmup_fraction lr_warmup_steps lr_scheduler lr_scheduler_type warmup_steps "
    "warmup_ratio warmup_epochs warmup_lr_init steps_total total_steps train_iters"
)
_DATA = "seed seeds.all data_seed data_fingerprint shuffle data_path dataset_dir train_data_path"
_OTHER_JOB = (
    "global_batch_size batch_size gradient_accumulation_steps accumulation_steps micro_batch_num seq_length seq_len "
    "max_seq_length max_length context_length hidden_size width num_layers num_hidden_layers layers num_heads heads "
    "num_attention_heads ffn_hidden_size intermediate_size vocab_size vocabulary_size num_experts hidden_dropout "
    "attention_dropout hidden_dropout_rate attention_dropout_rate dropout dropout_rate init_method_std "
    "initializer_range label_smoothing load load_checkpoint resume_training resume_from_checkpoint"
)
RATE, DATA, OTHER_JOB = frozenset(_RATE.split()), frozenset(_DATA.split()), frozenset(_OTHER_JOB.split())
_HARMLESS = re.compile(
    r"(^|[._])(run_?id|run_?name|name|job|dir|path|file|output|logs?|log_level|logging|save|tensorboard|wandb|host|port"
    r"|addr|address|master|time|date|start_ns|launch|attempts|process_id|pid|tags?|interval|print|report|cache|user|rank"
    r"|url|checkpoint_dir|experiment|evaluation)([._]|$)",
    re.IGNORECASE,
)
_NORM_LAYER = re.compile(r"norm|bn", re.IGNORECASE)
_TYPE_WORDS = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "half": "float16", "float": "float32"}


@dataclass(frozen=True, kw_only=True)
class Differences:
    """What differs between the settings of two runs.

    Attributes:
        changed: of precision and optimizer: (what it is, name, value of the first run, of the second).
        one_sided: of precision and optimizer: (what it is, which run has it: 0 or 1, its value).
        known: how many of them each run tells.
        rate, data, other_job: names of settings of the schedule, of the data and seeds, of model, batch and start.
        others: names of further settings that differ and may bear on the loss.
        same: settings that agree.
    """

    changed: tuple[tuple[str, str, str, str], ...]
    one_sided: tuple[tuple[str, int, str], ...]
    known: tuple[int, int]
    rate: tuple[str, ...]
    data: tuple[str, ...]
    other_job: tuple[str, ...]
    others: tuple[str, ...]
    same: int


def differences(first: Mapping[str, str], second: Mapping[str, str]) -> Differences:
    """Compare the settings of two runs; values are compared as numbers, types and switches, not as text.

    Args:
        first: settings of one run by (dotted) name.
        second: of the other.
    """
    sides = (_split(first), _split(second))
    told = [_precision_and_optimizer(side) for side in sides]
    differing = sorted(n for n in sides[0].keys() & sides[1].keys() if plain(sides[0][n]) != plain(sides[1][n]))
    groups = {name: _group(name) for name in differing}
    return Differences(
        changed=tuple(_changed(told[0], told[1])),
        one_sided=tuple(
            (what, side, ", ".join(map(_shown, told[side][what].values())))
            for side in (0, 1)
            for what in told[side]
            if what not in told[1 - side]
        ),
        known=(len(told[0]), len(told[1])),
        rate=tuple(n for n, g in groups.items() if g == "rate"),
        data=tuple(n for n, g in groups.items() if g == "data"),
        other_job=tuple(n for n, g in groups.items() if g == "other_job"),
        others=tuple(n for n, g in groups.items() if g == "other"),
        same=len(sides[0].keys() & sides[1].keys()) - len(differing),
    )


def plain(value: str) -> str:
    """A value in one spelling: 1e-08 for 1.0E-8, true for True, float16 for mstype.fp16."""
    text = value.strip().strip("'\"").lower().removeprefix("torch.").removeprefix("mstype.").removeprefix("ms.")
    try:
        return repr(float(text))
    except ValueError:
        return _TYPE_WORDS.get(text, text)


def what_is(name: str) -> str | None:
    """What a setting of precision or optimizer is, by the last part of its name; None for any other."""
    parts = _parts(name)
    if parts[-1] in ("eps", "epsilon", "momentum") and any(_NORM_LAYER.search(p) for p in parts[:-1]):
        return None
    last = _last(parts)
    return next((what for what, names in PRECISION_AND_OPTIMIZER.items() if last & set(names)), None)


def _parts(name: str) -> list[str]:
    return name.lower().replace("-", "_").split(".")


def _last(parts: list[str]) -> set[str]:
    """The last part of a name, and the last two: `eps`, and `optimizer.type`, which `type` alone is not."""
    return {parts[-1], ".".join(parts[-2:])}


def _shown(value: str) -> str:
    text = plain(value)
    return f"{float(text):g}" if re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?", text) else value


def _split(settings: Mapping[str, str]) -> dict[str, str]:
    """With `betas: [0.9, 0.95]` as beta1 and beta2."""
    found = dict(settings)
    for name, value in settings.items():
        head, _, last = name.rpartition(".")
        numbers = re.findall(r"[\d.eE+-]+", value) if last.lower() in ("betas", "adam_betas") else []
        if len(numbers) == 2:
            del found[name]
            found |= {f"{head}.beta{i}".strip("."): number for i, number in enumerate(numbers, 1)}
    return found


def _precision_and_optimizer(settings: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """What it is -> values by the last part of the name."""
    told: dict[str, dict[str, str]] = {}
    for name, value in settings.items():
        if (what := what_is(name)) is not None:
            told.setdefault(what, {})[_parts(name)[-1]] = value
    return told


def _changed(
    first: Mapping[str, Mapping[str, str]], second: Mapping[str, Mapping[str, str]]
) -> list[tuple[str, str, str, str]]:
    rows = []
    for what in (w for w in PRECISION_AND_OPTIMIZER if w in first and w in second):
        common = [n for n in first[what] if n in second[what]]
        if not common and len(first[what]) == len(second[what]) == 1:  # one thing under two names: eps, adam_eps
            common = [""]
        for name in common:
            values = [side[what][name] if name else next(iter(side[what].values())) for side in (first, second)]
            if plain(values[0]) != plain(values[1]):
                rows.append((what, name or what, _shown(values[0]), _shown(values[1])))
    return rows


def _group(name: str) -> str | None:
    last = _last(_parts(name))
    if what_is(name) is not None or name.startswith("log."):
        return None
    groups = {"other_job": OTHER_JOB, "rate": RATE, "data": DATA}
    found = next((group for group, names in groups.items() if last & names), None)
    return found or (None if _HARMLESS.search(name) else "other")
