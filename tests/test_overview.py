"""What is said about a run: its steps, and notes that several files share."""

from dataclasses import replace

from workbench.overview import alike_notes, as_html, notes_text, steps_text
from workbench.tables import Note

FIRST = Note(file="rank_0/a.csv", where="column Bubble", problem="It is 0.", lost="bubble_us", fix="take the trace")
OTHER = replace(FIRST, where="line 3")
NOTES = [FIRST, OTHER, replace(FIRST, file="rank_1/a.csv"), replace(FIRST, file="rank_2/a.csv")]


def test_one_step_is_no_range():
    assert steps_text([13, 13]) == "step 13"
    assert steps_text([1, 9]) == "steps 1 to 9"


def test_files_with_the_same_problem_are_told_once():
    assert alike_notes(NOTES) == [replace(FIRST, file="rank_0/a.csv and 2 more file(s)"), OTHER]
    assert alike_notes([]) == []
    head, *lines = notes_text(NOTES)
    assert head.startswith("4 note(s)")
    assert len(lines) == 2
    assert as_html("Run", [], {"tables": [], "missing": []}, NOTES).count("column Bubble") == 1
