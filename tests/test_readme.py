"""The README's topics, commands and links are compared with what exists."""

import re
import shlex
from pathlib import Path

import pytest

from workbench.cli import build_parser
from workbench.tables import TABLES

REPOSITORY = Path(__file__).parents[1]
README = (REPOSITORY / "README.md").read_text()
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


def topic_rows() -> list[list[str]]:
    block = README.split("<!-- topics", 1)[1].split("<!-- end -->")[0]
    lines = [line for line in block.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("row", topic_rows(), ids=lambda row: row[0])
def test_the_topic_grid_names_files_and_tables_that_exist(row):
    _topic, reader, table, analysis, rule, chart, notebook = row
    assert table in TABLES
    paths = [f"workbench/{path}" for path in (reader, analysis, rule, chart) if path != "–"]
    for path in (*paths, *([notebook] if notebook != "–" else [])):
        assert (REPOSITORY / path).is_file(), path


def test_every_topic_with_rules_is_in_the_grid():
    rules = {p.stem for p in (REPOSITORY / "workbench/findings").glob("*.py")}
    no_topics = "__init__ finding rule rule_tables diagnosis joining playbooks shown verdict cluster pricing"
    own = {*no_topics.split(), "checks", "evidence", "jobs", "judged", "lab_truth"}
    assert rules - own <= {Path(row[4]).stem for row in topic_rows()}


def test_commands_in_the_readme_exist():
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", README, re.S | re.M)
    lines = [line.split("#")[0].strip() for _language, block in blocks for line in block.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("workbench ")]
    assert len(commands) >= 4
    for words in commands:
        build_parser().parse_args(words)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
