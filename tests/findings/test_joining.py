import pytest

from workbench.findings.finding import CAUSES, Culprit, Evidence, Finding, RuledOut, Steps
from workbench.findings.joining import EXPLAINS, join, joined, same_cause
from workbench.findings.pricing import GAIN_OF_ITS_OWN


def finding(cause="slow_rank", **values):
    words = {"playbook": "T4", "severity": "warning", "confidence": "high", "title": cause, "fix": "f", "source": "s"}
    return Finding(cause=cause, **{**words, **values})


def at(**place):
    return Culprit(**place)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ({"culprit": at(rank=3)}, {"culprit": at(rank=3)}, True),
        ({"culprit": at(rank=3)}, {"culprit": at(rank=4)}, False),
        ({"culprit": at(rank=3)}, {}, True),
        ({"culprit": at(rank=3)}, {"culprit": at(op="MatMul")}, False),
        ({"culprit": at(rank=3, op="MatMul")}, {"culprit": at(rank=3)}, True),
        ({}, {}, True),
        ({"culprit": at(rank=3), "sub_cause": "busy_host"}, {"culprit": at(rank=3), "sub_cause": "throttled"}, True),
    ],
)
def test_one_cause_is_one_place(a, b, same):
    assert same_cause(finding(**a), finding(**b)) is same
    assert same_cause(finding(**b), finding(**a)) is same
    assert not same_cause(finding(**a), finding("slow_link", **b))


def test_sub_causes_tell_leaks_apart_and_the_better_known_reason_stays():
    host, device = (finding("memory_leak", sub_cause=kind) for kind in ("host", "device"))
    assert not same_cause(host, device)
    general = finding(sub_cause="busy_host", confidence="medium", culprit=at(rank=3))
    exact = finding(sub_cause="device_throttled", confidence="low", culprit=at(rank=3))
    assert joined(general, exact).sub_cause == "device_throttled"
    assert joined(general, finding(culprit=at(rank=3))).sub_cause == "busy_host"


def test_a_stall_whose_reason_one_input_does_not_know_is_one_stall():
    unknown = finding("stall_steps", sub_cause="unknown", confidence="high")
    known = finding("stall_steps", sub_cause="gc", confidence="medium")
    (both,) = join([unknown, known])
    assert both.sub_cause == "gc"
    (alone,) = join([unknown, unknown])
    assert alone.sub_cause == "unknown"


def test_joined_findings_keep_the_surer_words_and_all_facts():
    sure = finding(title="sure", evidence=(Evidence(fact="a", value=1),), rules_out=(RuledOut(cause="x", because="1"),))
    grave = finding(
        title="grave", severity="critical", confidence="medium", culprit=at(rank=2), steps=Steps(first=5, last=9),
        saves_us_per_step=7.0, evidence=(Evidence(fact="a", value=2), Evidence(fact="b", value=3)),
        rules_out=(RuledOut(cause="x", because="2"), RuledOut(cause="y", because="3")),
    )  # fmt: skip
    for both in (joined(sure, grave), joined(grave, sure)):
        assert (both.title, both.severity, both.confidence) == ("sure", "critical", "high")
        assert (both.culprit.rank, both.steps.first, both.saves_us_per_step) == (2, 5, 7.0)
        assert [(e.fact, e.value) for e in both.evidence] == [("a", 1), ("b", 3)]
        assert [(r.cause, r.because) for r in both.rules_out] == [("x", "1"), ("y", "3")]


def test_what_a_proven_cause_explains_is_told_and_not_claimed():
    proven, symptom = finding("recompile"), finding("stall_steps", severity="critical", confidence="medium")
    first, second = join([symptom, proven])
    assert (first.cause, first.severity, first.confidence) == ("stall_steps", "info", "low")
    assert first.evidence[-1] == Evidence(fact="explained by", value="recompile")
    assert second == proven
    unsure = finding("recompile", confidence="medium")
    assert join([symptom, unsure]) == [symptom, unsure]
    same = finding("stall_steps", sub_cause="unknown", steps=Steps(list=(3, 7)))
    by_steps = finding("recompile", confidence="medium", steps=Steps(list=(2, 3, 7)))
    assert [f.confidence for f in join([same, by_steps])] == ["low", "medium"]  # the cause lists both slow steps
    pause = finding("stall_steps", sub_cause="pause_between_steps", steps=Steps(list=(3, 7)))
    assert [f.confidence for f in join([pause, by_steps])] == ["low", "medium"]
    other = finding("stall_steps", sub_cause="unknown", steps=Steps(list=(3, 8)))
    assert join([other, by_steps]) == [other, by_steps]
    spike, odd = finding("loss_spike", confidence="medium"), finding("bad_batch", confidence="medium")
    assert [f.severity for f in join([spike, odd])] == ["info", "warning"]  # a word without a proof
    hint = finding("recompile", severity="info")
    assert join([symptom, hint]) == [symptom, hint]


def test_what_keeps_its_gain_when_the_other_is_gone_is_no_symptom():
    def replayed(cause, alone_us):
        fact = Evidence(fact=GAIN_OF_ITS_OWN, value=alone_us, unit="us per step")
        return finding(cause, evidence=(fact,), saves_us_per_step=100.0)

    starved, apart, symptom = replayed("data_starved", 500.0), replayed("small_ops", 100.0), replayed("small_ops", 4.0)
    assert join([starved, apart]) == [starved, apart]
    assert [f.severity for f in join([starved, symptom])] == ["warning", "info"]
    assert join([finding("data_starved"), apart])[1].severity == "info"  # was not replayed together


def test_fragments_explain_a_slow_rank_only_on_that_rank():
    slow = finding(culprit=at(rank=12), sub_cause="busy_host", confidence="medium")
    pool = finding("fragmentation", culprit=at(rank=12), evidence=(Evidence(fact="pool", value=1.0),))
    other = finding("fragmentation", culprit=at(rank=3))
    first, second, third = join([slow, pool, other])
    assert (first.sub_cause, first.confidence, first.evidence) == ("fragmentation", "high", pool.evidence)
    assert (second.severity, third.severity) == ("info", "warning")
    assert join([slow, other])[0] == slow


def test_the_table_of_symptoms_knows_its_words_and_has_no_circle():
    words = {*EXPLAINS, *(w for symptoms in EXPLAINS.values() for w in symptoms)}
    assert words <= set(CAUSES)
    for cause, symptoms in EXPLAINS.items():
        assert all(cause not in EXPLAINS.get(s, ()) for s in symptoms)


def test_nothing_in_nothing_out():
    assert join([]) == []
