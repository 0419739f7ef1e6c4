"""The playbooks: from a symptom to the causes that its notebook checks, in the order of the checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Playbook:
    """One playbook: what the user sees, its notebook, and the causes that it tells apart."""

    symptom: str  # one sentence
    notebook: str  # stem of notebooks/troubleshoot/<notebook>.ipynb
    causes: tuple[str, ...]  # words of `workbench.findings.finding.CAUSES`, in the order of the checks
    sample: str  # folder of data_samples/ that shows the symptom: the notebook's default
    fixed_sample: str  # folder of data_samples/: the same after the fix


PLAYBOOKS: Mapping[str, Playbook] = {
    "T1": Playbook(
        symptom="The loss spikes, rises, or is far lower than it can be.",
        notebook="loss_spikes_or_too_low",
        causes=("loss_not_finite", "lr_schedule_error", "resume_state_lost", "lr_too_high", "no_gradient_clipping",
                "fp16_overflow", "loss_normalisation", "label_leak", "bad_batch", "loss_spike",
                "precision_or_optimizer_mismatch"),
        sample="lab_runs/no_clipping",
        fixed_sample="lab_runs/clipped",
    ),
    "T2": Playbook(
        symptom="Throughput is low and the devices are not busy.",
        notebook="low_throughput",
        causes=("data_starved", "host_side_accumulation", "step_time_drift", "host_gc_jitter",
                "evaluation_interference", "exposed_communication", "no_overlap", "small_ops", "slow_op",
                "recompute_overhead"),
        sample="data_starved/starved",
        fixed_sample="data_starved/tuned",
    ),
    "T3": Playbook(
        symptom="A device runs out of memory, also after the parallel strategy was changed.",
        notebook="out_of_memory",
        causes=("device_shared_with_other_process", "out_of_memory", "stage_imbalance", "single_request_too_large",
                "memory_limit_too_low", "memory_leak"),
        sample="cases/05-oom-first-pipeline-stage",
        fixed_sample="stages_evened",
    ),
    "T4": Playbook(
        symptom="More devices bring little, or a job of several ranks hangs.",
        notebook="poor_scaling",
        causes=("rank_missing_collective", "rank_late", "slow_rank", "slow_link", "no_rdma_fallback",
                "link_bound_sharding", "exposed_communication", "no_overlap", "unfused_allreduce", "pipeline_bubble",
                "poor_scaling"),
        sample="simulated_cluster",
        fixed_sample="simulated_cluster_healthy",
    ),
    "T5": Playbook(
        symptom="One subset of the evaluation gets worse while the whole improves.",
        notebook="one_subset_degrades",
        causes=("subset_regression", "data_mix_shift", "forgetting", "tokenizer_special_tokens", "tokenizer_coverage",
                "context_length_shift", "degenerate_output", "layer_drift"),
        sample="subset_starved",
        fixed_sample="subset_even",
    ),
    "T6": Playbook(
        symptom="The data pipeline is too slow, or its data are not what they should be.",
        notebook="data_pipeline_too_slow",
        causes=("data_starved", "duplicate_data", "empty_data", "truncated_samples", "dropped_samples",
                "small_shuffle_buffer"),
        sample="data_starved/starved",
        fixed_sample="data_starved/tuned",
    ),
    "T7": Playbook(
        symptom="The step has waits that no operator explains.",
        notebook="ghost_waits",
        causes=("stall_steps", "host_gc_jitter", "data_starved", "recompile", "checkpoint_stall",
                "evaluation_interference", "slow_rank", "small_ops"),
        sample="simulated_devices/stall_steps",
        fixed_sample="simulated_devices/healthy",
    ),
    "T8": Playbook(
        symptom="Some steps take as long as a compilation.",
        notebook="recompiles_on_new_shapes",
        causes=("recompile", "stall_steps", "checkpoint_stall", "evaluation_interference"),
        sample="lab_runs/recompile",
        fixed_sample="lab_runs/healthy",
    ),
    "T9": Playbook(
        symptom="Memory limits the batch or the sequence length.",
        notebook="memory_wall",
        causes=("fragmentation", "memory_leak", "memory_limit_too_low", "device_shared_with_other_process",
                "stage_imbalance", "recompute_overhead"),
        sample="simulated_devices/fragmentation",
        fixed_sample="simulated_devices/healthy",
    ),
    "T10": Playbook(
        symptom="The same job became slower after a change.",
        notebook="slower_after_a_change",
        causes=("version_regression", "step_time_drift", "host_side_accumulation", "data_starved", "slow_rank"),
        sample="cases/11-slower-after-upgrade",
        fixed_sample="upgrade_fixed",
    ),
    "E7": Playbook(
        symptom="Training stands still while checkpoints are saved.",
        notebook="checkpoints_stop_training",
        causes=("checkpoint_stall", "checkpoint_single_writer", "checkpoint_corrupt"),
        sample="lab_runs/checkpoint_stall",
        fixed_sample="lab_runs/checkpoints",
    ),
}  # fmt: skip
