import pytest

from tests.made_run import made_steps, write_run
from workbench.errors import UnknownParameterError
from workbench.findings.checks import Examined, Recorded, check, checks, conclude, examine, prove
from workbench.findings.diagnosis import RULES, Diagnosis
from workbench.findings.evidence import EVIDENCE, GRAPH_OPERATORS, KINDS
from workbench.findings.finding import CAUSES, Evidence, Finding, RuledOut
from workbench.findings.playbooks import PLAYBOOKS
from workbench.tables import TABLES

EVERYTHING = Recorded(
    frozenset(c for ways in EVIDENCE.values() for w in ways for c in (*w.columns, *w.kinds)), ranks=2, jobs=2
)
NOTHING = Recorded(frozenset())


class NamedRun:
    def __init__(self, run_id):
        self.run_id = run_id


def finding(cause, **options):
    words = {
        "playbook": "T4",
        "severity": "warning",
        "confidence": "high",
        "title": f"{cause} of 7 ms.",
        "fix": "Mend it.",
    }
    return Finding(cause=cause, source="made up", **words | options)


def diagnosis(*findings):
    coverage = {"tables": ["step_time"], "steps": None, "ranks": [0], "missing": []}
    return Diagnosis(run="made", coverage=coverage, causes=findings)


def examined(*findings, recorded=EVERYTHING, name="made"):
    return Examined(NamedRun(name), diagnosis(*findings), recorded)


def test_every_cause_has_evidence_and_a_rule():
    assert set(EVIDENCE) == set(CAUSES) - {"none"}
    assert {cause for rule in RULES for cause in rule.causes} == set(CAUSES)


def test_kinds_have_words_and_tables():
    named = {kind for ways in EVIDENCE.values() for way in ways for kind in way.kinds}
    assert named == set(KINDS)
    assert {kind.split(":")[0] for kind in KINDS} <= set(TABLES)


@pytest.mark.parametrize("cause", EVIDENCE)
def test_evidence_is_what_rules_that_name_the_cause_read(cause):
    read = {t for r in RULES if cause in r.causes for t in (*r.needs, *r.needs_any, *r.uses)}
    for way in EVIDENCE[cause]:
        assert {kind.split(":")[0] for kind in way.kinds} <= read
        for name in way.columns:
            table, _, column = name.partition(".")
            assert table in read
            assert not column or column in {c.name for c in TABLES[table].columns}


def test_a_finding_is_the_cause_and_gives_its_numbers():
    made = check(diagnosis(finding("slow_rank", saves_us_per_step=7_000.0)), NOTHING, "slow_rank")
    assert made.verdict == "the cause"
    assert made.because == "slow_rank of 7 ms. It costs 7 ms per step. (high confidence)"
    assert made.finding.cause == "slow_rank"


def test_a_symptom_is_not_the_cause():
    facts = (Evidence(fact="explained by", value="slow_rank"),)
    made = check(diagnosis(finding("rank_late", severity="info", evidence=facts)), EVERYTHING, "rank_late")
    assert made.verdict == "not the cause"
    assert made.because.endswith("That is a symptom of slow_rank.")


def test_what_a_finding_rules_out_is_not_the_cause_even_without_tables():
    ruled = (RuledOut(cause="data_starved", because="the queue is full"),)
    made = check(diagnosis(finding("slow_rank", rules_out=ruled)), NOTHING, "data_starved")
    assert (made.verdict, made.because) == ("not the cause", "The queue is full. (told by slow_rank)")


def test_without_evidence_it_says_what_to_collect():
    made = check(diagnosis(), NOTHING, "slow_link")
    assert made.verdict == "cannot tell"
    assert made.because == (
        f"Needs table links ({TABLES['links'].fix}) and the files of several ranks: name the folder that "
        "holds all of them."
    )
    two = Recorded(frozenset({"training_steps.step_us"}))
    assert "two jobs to compare" in check(diagnosis(), two, "version_regression").because


def test_with_evidence_and_no_finding_it_is_not_the_cause():
    recorded = Recorded(frozenset({"kernels"}), ranks=4, steps=(5, 7))
    made = check(diagnosis(), recorded, "small_ops")
    assert (made.verdict, made.because) == ("not the cause", "No sign of it in kernels of 4 rank(s), steps 5 to 7.")


def test_a_sign_without_what_would_prove_it_cannot_be_told():
    facts = (Evidence(fact="share", value=0.2), Evidence(fact="not known: the limit; set it"))
    sign = finding("recompute_overhead", severity="info", confidence="medium", evidence=facts)
    made = check(diagnosis(sign), EVERYTHING, "recompute_overhead")
    assert (made.verdict, made.because) == ("cannot tell", "recompute_overhead of 7 ms. Not known: the limit; set it.")


@pytest.mark.parametrize(
    ("profile", "graph_mode"), [("recompute_cpu/single_operators", True), ("throttled_rank", False)]
)
def test_operators_under_scopes_are_what_recomputation_is_judged_by(data_samples, profile, graph_mode):
    examined = examine(data_samples / profile)
    assert (GRAPH_OPERATORS in examined.recorded.columns) == graph_mode
    made = check(examined.diagnosis, examined.recorded, "recompute_overhead")
    assert made.verdict == ("not the cause" if graph_mode else "cannot tell")


def test_a_cause_that_only_some_rows_tell_of_needs_a_row_of_that_kind():
    steps = {"training_steps.step_us"}
    blind = check(diagnosis(), Recorded(frozenset(steps)), "host_gc_jitter")
    assert blind.verdict == "cannot tell"
    assert blind.because.startswith("Needs pauses of Python's garbage collector (")
    seen = check(diagnosis(), Recorded(frozenset({*steps, "events:gc"})), "host_gc_jitter")
    assert (seen.verdict, seen.because) == (
        "not the cause",
        "No sign of it in events of kind gc, training_steps.step_us of 1 rank(s).",
    )


def test_an_unknown_word_is_refused():
    with pytest.raises(UnknownParameterError, match="gremlins"):
        check(diagnosis(), NOTHING, "gremlins")
    with pytest.raises(UnknownParameterError, match="T99"):
        conclude(examined(), "T99")


def test_the_conclusion_names_the_fix_or_where_to_go_on():
    own = conclude(examined(finding("slow_rank"), finding("recompile", playbook="T8")), "T4")
    assert own.sentence == "The cause is slow_rank: slow_rank of 7 ms. Fix: Mend it. Also found: recompile."
    deeper = conclude(examined(finding("recompile", playbook="T8")), "T7")
    assert deeper.sentence.endswith("Fix: Mend it. More on it: T8, troubleshoot/recompiles_on_new_shapes.")
    assert [c.cause for c in own.checks] == list(PLAYBOOKS["T4"].causes)
    other = conclude(examined(finding("recompile", playbook="T8")), "T4")
    assert "Go on with T8, troubleshoot/recompiles_on_new_shapes." in other.sentence
    none = conclude(examined(), "T8")
    assert none.sentence == "None of this playbook's causes, and nothing else is found."
    blind = conclude(examined(recorded=NOTHING), "T8")
    assert blind.sentence.startswith("None of this playbook's causes can be judged, and nothing else is found.")
    assert "color:#57606a" in blind._repr_html_().partition("</b>")[0]
    assert "color:#116329" in none._repr_html_().partition("</b>")[0]
    assert blind.sentence.endswith(f"Not judged, for want of evidence: {', '.join(PLAYBOOKS['T8'].causes)}.")


def test_the_proof_looks_at_what_was_found_before():
    faulty = examined(finding("slow_rank"), name="before")
    gone = prove(faulty, examined(name="after"), "T4")
    assert gone.sentence == "Proven: slow_rank in before, gone in after. Nothing else was found in it."
    still = prove(faulty, examined(finding("slow_rank"), name="after"), "T4")
    assert still.sentence.startswith("Not proven: slow_rank is still there in after")
    blind = prove(faulty, examined(name="after", recorded=NOTHING), "T4")
    assert blind.sentence.startswith("Not proven: slow_rank")
    new = prove(faulty, examined(finding("recompile", playbook="T8"), name="after"), "T4")
    assert new.sentence.endswith("New in it: recompile.")
    assert prove(examined(), examined(), "T4").sentence.startswith("Nothing to prove")


def test_checks_show_themselves_escaped():
    shown = checks(examined(finding("slow_rank", title="<b>7</b> ms.")), "slow_rank")._repr_html_()
    assert "&lt;b&gt;7" in shown
    assert "#b3261e" in shown


def test_a_recorded_run_is_examined_by_the_columns_that_have_values(tmp_path):
    steps = made_steps(60).assign(learning_rate=float("nan"))
    seen = examine(write_run(tmp_path / "run", steps))
    assert "training_steps.loss" in seen.recorded.columns
    assert "training_steps.learning_rate" not in seen.recorded.columns
    assert (seen.recorded.ranks, seen.recorded.jobs, seen.recorded.steps) == (1, 1, (1, 60))
    words = {c.cause: c.verdict for c in conclude(seen, "T1").checks}
    assert words["lr_schedule_error"] == "cannot tell"
    assert words["loss_spike"] == "not the cause"
