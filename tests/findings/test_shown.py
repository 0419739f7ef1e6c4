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
    assert fact_text(Evidence(fact="a", value=2_097_711.475, unit="us")) == "a: 2,097,711 us"
    assert fact_text(Evidence(fact="a", value=3e-7)) == "a: 3e-07"


def test_what_stands_between_backquotes_is_code():
    assert with_code("call `report <RUN>` & wait") == "call <code>report &lt;RUN&gt;</code> &amp; wait"
