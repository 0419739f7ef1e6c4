import json

import pytest

import workbench as wb
from workbench.findings.finding import CAUSES, Evidence, Finding
from workbench.findings.playbooks import PLAYBOOKS
from workbench.tables import TABLES
from workbench.widgets.causes import CauseList
from workbench.widgets.tabs import TAB_OF_CAUSE, TAB_OF_PLAYBOOK, TAB_OF_TABLE, TABS, evidence_tab


@pytest.fixture(scope="module")
def explorer(data_samples):
    return wb.explore(data_samples / "simulated_cluster")


def buttons(row):
    return {b.description: b for b in row.children[1].children[:-1]}


def test_a_cause_leads_to_its_evidence(explorer):
    causes = explorer.page("Overview").slots["causes"].widget.children[0]
    assert [f.cause for f in explorer.diagnosis.causes] == ["slow_link", "slow_rank"]
    link, slow = causes.children[1:]
    buttons(slow)["Show evidence"].click()
    assert (explorer.tab, explorer.rank) == ("Ranks", 2)
    buttons(link)["Show evidence"].click()
    assert explorer.tab == "Communication"
    explorer.ranks, explorer.steps = (2,), (6, 6)
    assert set(explorer.tables["collectives"]["rank_id"]) == {2}
    bars = explorer.page("Communication").slots["waits"].widget.children[0].chart.to_dict()
    assert {row["rank_id"] for rows in bars["datasets"].values() for row in rows} == {2}


def test_a_cause_opens_its_playbook_with_the_run(data_samples, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = data_samples / "subset_starved"
    causes = CauseList(run, wb.diagnose(run))
    row = next(r for r in causes.children[1:] if "Open playbook T5" in buttons(r))
    assert "Show evidence" not in buttons(row)
    buttons(row)["Open playbook T5"].click()
    words = row.children[1].children[-1].outputs[0]["data"]["text/html"]
    copy = tmp_path / words.split("'")[1]
    sources = ["".join(cell["source"]) for cell in json.loads(copy.read_text())["cells"]]
    assert any(f"run_path = {str(run.resolve())!r}" in source for source in sources)
    assert copy.relative_to(tmp_path).parts[0] == "playbooks"


def test_the_link_to_a_playbook_stays(data_samples, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    explorer = wb.explore(data_samples / "simulated_cluster")

    def links():
        """What stands behind the buttons of each cause."""
        explorer.tab = "Overview"
        causes = explorer.page("Overview").slots["causes"].widget.children[0]
        return [row.children[1].children[-1].outputs for row in causes.children[1:]]

    causes = explorer.page("Overview").slots["causes"].widget.children[0]
    buttons(causes.children[2])["Open playbook T4"].click()
    before = links()
    assert [bool(shown) for shown in before] == [False, True]
    explorer.tab = "Ranks"
    assert links() == before
    explorer.ranks, explorer.steps = (1, 2), (6, 7)
    assert links() == before
    explorer.refresh()  # as a run that is followed: the rules run anew
    assert links() == before
    explorer.run_path = str(data_samples / "simulated_cluster_8")
    assert links() == [(), ()]  # of another run


def test_a_folder_that_cannot_be_written_to_is_told(data_samples, tmp_path, monkeypatch):
    (tmp_path / "playbooks").write_text("a file where the folder should be")
    monkeypatch.chdir(tmp_path)
    run = data_samples / "subset_starved"
    causes = CauseList(run, wb.diagnose(run))
    row = next(r for r in causes.children[1:] if "Open playbook T5" in buttons(r))
    buttons(row)["Open playbook T5"].click()
    assert "playbooks" in row.children[1].children[-1].outputs[0]["data"]["text/html"]


def test_every_cause_has_a_tab():
    assert set(TAB_OF_CAUSE) <= set(CAUSES)
    assert set(TAB_OF_TABLE) <= set(TABLES)
    assert set(TAB_OF_PLAYBOOK) <= set(PLAYBOOKS)
    assert {*TAB_OF_CAUSE.values(), *TAB_OF_TABLE.values(), *TAB_OF_PLAYBOOK.values()} <= set(TABS)


def test_the_tab_is_that_of_the_cause_then_of_the_facts_then_of_the_playbook():
    def tab(cause, playbook, *tables):
        facts = tuple(Evidence(fact="f", table=t) for t in tables)
        finding = Finding(cause=cause, playbook=playbook, severity="warning", confidence="low", title="", fix="",
                          source="", evidence=facts)  # fmt: skip
        return evidence_tab(finding)

    assert tab("slow_rank", "T4", "collectives") == "Ranks"
    assert tab("slow_link", "T4", "log_messages", "links") == "Communication"
    assert tab("out_of_memory", "T3", "log_messages") == "Memory"
    assert tab("lr_too_high", "T1", "training_steps") == "Training"
