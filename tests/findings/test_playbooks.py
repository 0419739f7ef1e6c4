import re
from pathlib import Path

from workbench.findings.finding import CAUSES
from workbench.findings.playbooks import PLAYBOOKS

REPOSITORY = Path(__file__).parents[2]


def test_every_cause_has_a_playbook_and_every_playbook_known_causes():
    named = {cause for playbook in PLAYBOOKS.values() for cause in playbook.causes}
    assert named == set(CAUSES) - {"none"}
    assert len({p.notebook for p in PLAYBOOKS.values()}) == len(PLAYBOOKS)


def test_rules_name_playbooks_that_exist():
    words = set()
    for path in (REPOSITORY / "workbench/findings").glob("*.py"):
        words |= set(re.findall(r'playbook=(?:"(\w+)")', path.read_text()))
    assert words - set(PLAYBOOKS) == {"none"}
    assert {"T1", "T3", "T6"} <= words


def test_troubleshooting_notebooks_are_those_of_playbooks():
    folder = REPOSITORY / "notebooks/troubleshoot"
    assert {p.stem for p in folder.glob("*.ipynb")} == {p.notebook for p in PLAYBOOKS.values()}


def test_the_page_on_the_diagnosis_shows_all_words():
    """After a new word: `python benchmarks/diagnosis_words.py`."""
    page = (REPOSITORY / "docs/diagnosis.md").read_text()
    for word, meaning in CAUSES.items():
        assert f"| `{word}` | {meaning} |" in page
    for name, playbook in PLAYBOOKS.items():
        assert f"| {name} | {playbook.symptom} |" in page
