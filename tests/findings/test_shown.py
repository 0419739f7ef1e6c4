from workbench.findings.finding import Evidence, Finding, RuledOut
from workbench.findings.shown import as_html_row, as_text, fact_text, with_code

FINDING = Finding(
    cause="recompile", sub_cause="new_shapes", playbook="T8", severity="warning", confidence="medium",
    title="Compiled 3 times, for <lengths>.", fix="Pad.", source="s", saves_us_per_step=12_500.0,
    evidence=(Evidence(fact="compilations", value=3), Evidence(fact="lost", value=1234.5678, unit="s"),
              Evidence(fact="not known: the lengths")),
    rules_out=(RuledOut(cause="data_starved", because="no wait"),),
)  # fmt: skip


def test_a_finding_as_text():
    assert as_text(FINDING, 2).splitlines() == [
        "2. [warning] Compiled 3 times, for <lengths>.",
        "   Cause: recompile (new_shapes), confidence medium, playbook T8",
        "   Fix: Pad.",
        "   Gain: 12.5 ms per step",
        "   - compilations: 3",
        "   - lost: 1,235 s",
        "   - not known: the lengths",
        "   Not data_starved: no wait",
    ]


def test_a_finding_as_a_row_is_escaped_and_complete():
    row = as_html_row(FINDING)
    assert "for &lt;lengths&gt;." in row
    for words in (
        "medium confidence",
        "recompile (new_shapes)",
        "lost: 1,235 s",
        "not data_starved: no wait",
        "12.5 ms",
    ):
        assert words in row


def test_facts_without_a_unit_or_value():
    assert fact_text(Evidence(fact="a", value="x")) == "a: x"
    assert fact_text(Evidence(fact="a")) == "a"
    assert fact_text(Evidence(fact="a", value=0.25, unit="share of the step")) == "a: 25% of the step"
    assert fact_text(Evidence(fact="a", value=3e-7)) == "a: 3e-07"


def test_long_times_steps_and_single_things_read_as_one_says_them():
    for value, unit, text in (
        (2_097_711.475, "us", "2.098 s"), (15_817.0, "us per step", "15.82 ms per step"), (999.4, "us", "999.4 us"),
        (140, "step", "step 140"), (1, "workers", "1 worker"), (1, "batches", "1 batch"), (2, "links", "2 links"),
        (1.3, "ratio", "1.3 times"),
    ):  # fmt: skip
        assert fact_text(Evidence(fact="a", value=value, unit=unit)) == f"a: {text}"


def test_what_stands_between_backquotes_is_code():
    assert with_code("call `report <RUN>` & wait") == "call <code>report &lt;RUN&gt;</code> &amp; wait"
