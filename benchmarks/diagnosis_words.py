"""Write the tables of cause words and playbooks into docs/diagnosis.md: `python benchmarks/diagnosis_words.py`."""

from __future__ import annotations

from pathlib import Path

from workbench.findings.finding import CAUSES
from workbench.findings.playbooks import PLAYBOOKS

PAGE = Path(__file__).parents[1] / "docs/diagnosis.md"


def causes_table() -> str:
    """One row per cause word: meaning, playbooks."""
    rows = ["| cause | meaning | playbooks |", "|---|---|---|"]
    for word, meaning in CAUSES.items():
        names = ", ".join(name for name, playbook in PLAYBOOKS.items() if word in playbook.causes)
        rows.append(f"| `{word}` | {meaning} | {names or '–'} |")
    return "\n".join(rows)


def playbooks_table() -> str:
    """One row per playbook: symptom, notebook, causes."""
    rows = ["| playbook | symptom | notebook | causes |", "|---|---|---|---|"]
    for name, playbook in PLAYBOOKS.items():
        causes = ", ".join(f"`{cause}`" for cause in playbook.causes)
        rows.append(f"| {name} | {playbook.symptom} | troubleshoot/{playbook.notebook} | {causes} |")
    return "\n".join(rows)


def with_tables(page: str) -> str:
    """The page with both tables between their markers."""
    for marker, table in (("<!-- causes -->", causes_table()), ("<!-- playbooks -->", playbooks_table())):
        before, _, rest = page.partition(marker)
        page = f"{before}{marker}\n{table}\n<!-- end -->{rest.partition('<!-- end -->')[2]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
