"""Other cases of the fourteen kinds, rendered here: the cause is named, and the healthy twin of each stays silent."""

import pytest

import workbench as wb
from tests import case_variants as made
from tests.log_text import write_logs
from workbench.findings.finding import CONFIDENCES

# files -> cause, least confidence, and what else is known of the first finding
SICK = {
    made.schedule_eight_times_too_fast: ("lr_schedule_error", "high", {"first": 2000}),  # zero at 16000 / 8
    made.leak_with_validation_lines: ("label_leak", "medium", {}),
    made.starved_by_json_lines: ("data_starved", "high", {}),
    made.growing_steps_by_json_lines: ("host_side_accumulation", "high", {}),
    made.stages_told_by_file_names: ("stage_imbalance", "high", {"stage": 0}),
    made.held_card_in_gib: ("device_shared_with_other_process", "high", {}),
    made.one_rank_idle: ("slow_rank", "high", {"rank": 3}),
    made.sockets_by_mindformers: ("no_rdma_fallback", "medium", {}),
    made.mix_without_mathematics: ("data_mix_shift", "high", {"subset": "math_word", "first": 8001}),
    made.new_lengths_cost_seconds: ("recompile", "medium", {}),
    made.fewer_tokens_after_an_upgrade: ("version_regression", "high", {}),
    made.saves_without_an_end: ("checkpoint_stall", "high", {"first": 100}),
    made.one_rank_of_eight_hangs: ("rank_missing_collective", "high", {"rank": 5}),
}
TWINS = (
    made.schedule_that_decays_at_its_end, made.loss_of_a_diffusion_model, made.data_time_beside_the_device,
    made.growing_sequences, made.uneven_stages_with_room, made.cards_all_in_use, made.last_stage_computes_longer,
    made.rdma_that_scales, made.mix_that_moves_a_little, made.new_lengths_cost_nothing,
    made.as_many_tokens_after_an_upgrade, made.saves_in_the_background, made.one_slow_batch,
    made.two_stages_at_their_begin,
)  # fmt: skip


def claimed(folder, files):
    """Findings that raise an alarm."""
    found = wb.diagnose(write_logs(folder, files)).causes
    return [f for f in found if f.severity != "info" and f.confidence != "low"]


@pytest.mark.parametrize("files", SICK, ids=lambda f: f.__name__)
def test_the_cause_is_named_and_no_other_claimed(tmp_path, files):
    cause, least, known = SICK[files]
    found = claimed(tmp_path, files())
    assert [f.cause for f in found] == [cause]
    assert CONFIDENCES.index(found[0].confidence) <= CONFIDENCES.index(least)
    place = {"first": found[0].steps.first, **vars(found[0].culprit)}
    assert {name: place[name] for name in known} == known


@pytest.mark.parametrize("files", TWINS, ids=lambda f: f.__name__)
def test_the_healthy_twin_raises_no_alarm(tmp_path, files):
    assert [(f.cause, f.title) for f in claimed(tmp_path, files())] == []
