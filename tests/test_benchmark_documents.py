"""Benchmarks write their tables into documents, between markers."""

import pytest
from document import write_section


def test_only_the_section_changes(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- lab -->\nold\n<!-- end of lab -->\nafter\n")
    write_section(page, "lab", "new")
    assert page.read_text() == "before\n<!-- lab -->\nnew\n<!-- end of lab -->\nafter\n"


def test_a_page_without_the_section_is_left_alone(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- lab -->\nold\n")
    with pytest.raises(SystemExit, match="no section"):
        write_section(page, "lab", "new")
    assert page.read_text() == "before\n<!-- lab -->\nold\n"
