"""A real training in which a subset is not sampled any more from half-way on: named, with its step and cause."""

from tests.analyses.test_subset_sampling import benchmark
from workbench.findings.diagnosis import diagnose


def test_the_starved_subset_of_a_real_training_is_named(tmp_path):
    starved = benchmark("subset_starved")
    plan = starved.Plan(steps=160, subset="arithmetic", samples_per_subset=12)
    starved.train_apart(tmp_path / "run", plan)
    found = [f for f in diagnose(tmp_path / "run").causes if f.playbook == "T5" and f.severity != "info"]
    assert [(f.cause, f.culprit.subset) for f in found] == [("data_mix_shift", "arithmetic")]
    assert abs(found[0].steps.first - plan.onset) <= starved.EVERY
    early = [f for f in diagnose(tmp_path / "run", step=plan.onset).causes if f.playbook == "T5"]
    assert early == []  # healthy up to there
