"""The parts of the post-training report on made tables, and what they say where tables are missing."""

import json

import pandas as pd

from tests.analyses.test_post_training import variants
from workbench.charts import post_training as charts
from workbench.findings.diagnosis import Diagnosis
from workbench.widgets import post_training_sections as sections
from workbench.widgets.sections import Text

FINE = ["It rained all day.", "The cat sat on the mat.", "We went home early."]
PARTS = (sections.problems, sections.different, sections.followed, sections.verdict)


def texts(loops: int) -> pd.DataFrame:
    """Two texts of each of 40 prompts, `loops` of them endless, and 10 sums."""
    rows = [
        {"subset": "english", "sample_id": str(k), "repeat": r, "prompt": f"p{k}", "temperature": 0.8,
         "output": "on and on " * 20 if k < loops else FINE[(k + r) % 3]}
        for k in range(40) for r in range(2)
    ]  # fmt: skip
    must = [json.dumps([{"kind": "first_line_equals", "value": str(k + 1)}]) for k in range(10)]
    sums = [{"subset": "sums", "sample_id": f"s{k}", "prompt": f"{k} + 1 =", "output": f" {k + 1}\n", "constraints": m}
            for k, m in enumerate(must)]  # fmt: skip
    return pd.DataFrame(rows + sums).assign(checkpoint="c-9", step=9, finish_reason="stop")


def test_every_part_shows_something():
    tables = {"generations": texts(10), "variant_samples": variants(0.05)}
    for part in (sections.problems(tables), sections.followed(tables), sections.variants(tables, "robustness")):
        assert part.to_dict()["facet"]["row"]["field"] == "subset"
    assert "self bleu" in sections.different(tables).to_html()
    assert "on and on" in sections.examples(tables, "repetition").to_html()
    assert "No text breaks" in sections.examples(tables, "empty").text
    found = sections.verdict(tables)
    assert isinstance(found, Diagnosis)
    assert [(c.cause, c.sub_cause) for c in found.causes] == [("degenerate_output", "repetition")]


def test_fine_texts_get_a_clean_verdict():
    assert "No rule is broken" in sections.verdict({"generations": texts(0)}).text


def test_what_is_missing_is_told_with_the_command():
    assert "post-training RUN --dimensions context_length" in sections.variants(
        {"variant_samples": variants(0.1)}, "context_length"
    ).text  # fmt: skip
    for part in PARTS:
        found = part({})
        assert isinstance(found, Text)
        assert "post-training" in found.text
    no_instructions = texts(0).drop(columns="constraints")
    assert "no generated text has instructions" in sections.followed({"generations": no_instructions}).text.lower()


def test_texts_with_control_characters_can_be_shown():
    odd = pd.DataFrame({"checkpoint": ["c"], "step": [1], "subset": ["s"], "sample_id": ["1"], "prompt": [None],
                        "output": ["\x00\x1b[31m<script>alert(1)</script>"], "wrong": [None]})  # fmt: skip
    page = charts.examples_table(odd).to_html()
    assert "\x00" not in page
    assert "\x1b" not in page
    assert "<script>" not in page
