"""Rules on generated texts: hand-written texts that break them, people's texts that do not, rates by hand."""

import ast
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.analyses import generated_text, text_rules
from workbench.errors import UnknownParameterError

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("output", "fragment"),
    [
        ("So it is. the cat sat on the cat sat on the cat sat on the cat sat on the cat sa", " the cat sat on"),
        ("今天天气很好，今天天气很好，今天天气很好，今天天气很好，", "今天天气很好，"),
        ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "a"),
        ("1 + 1 = 2\n" * 5, "1 + 1 = 2\n"),
        (" =" * 32, " ="),
    ],
)
def test_loops_at_the_end_are_found_with_their_fragment(output, fragment):
    found = text_rules.loop(output)
    assert found is not None
    assert len(found) == len(fragment)
    assert found in output
    assert text_rules.is_repetitive(output)


@pytest.mark.parametrize(
    "output",
    ["", "short", "A heading, and below it\n" + "-" * 80, "a b\n\n\n\n" + "\n" * 60, "ha ha ha", "x = [0, 0, 0, 0]"],
)
def test_rulers_and_short_repeats_are_no_loops(output):
    assert text_rules.loop(output) is None


@settings(deadline=None)
@given(st.text(alphabet="ab", min_size=1, max_size=6), st.integers(4, 9), st.text(alphabet="cd", max_size=20))
def test_a_fragment_repeated_often_enough_is_a_loop_whatever_stands_before(fragment, times, before):
    output = before + fragment * times
    if len(fragment) * times >= text_rules.LOOP_CHARACTERS:
        assert text_rules.loop(output) is not None


@settings(deadline=None)
@given(st.text(alphabet="abc ", max_size=40))
def test_borders_equal_those_by_definition(text):
    by_hand = [max(k for k in range(end) if text[:end][:k] == text[:end][end - k :]) for end in range(1, len(text) + 1)]
    assert list(text_rules._borders(text)) == by_hand


def test_four_grams_that_come_again_without_a_loop():
    words = [f"w{k}" for k in range(30)]
    assert not text_rules.is_repetitive(" ".join(words * 2))  # 57 4-grams, 30 of them different: 0.47
    assert text_rules.is_repetitive(" ".join([*words * 3, "end"]))  # 88, 31 different: 0.65


def test_scripts():
    assert text_rules.is_mixed("Привет, как дела сегодня", {"LATIN"}) is True
    assert text_rules.is_mixed("Hello there, how are you", {"LATIN"}) is False
    assert text_rules.is_mixed("今日は MindSpore を使います", {"CJK", "LATIN"}) is False
    assert text_rules.is_mixed("12 + 3 = 15", {"LATIN"}) is None  # no letters
    assert text_rules.script("あ") == text_rules.script("漢") == "CJK"


@pytest.mark.parametrize(
    ("prompt", "output", "cut", "expected"),
    [
        ("f(", "x) + [1]", False, False),
        ("f(", "x]", False, True),
        ("", "a (b", False, True),
        ("", "a (b", True, False),  # an open bracket in a cut text is no fault
        ("", "a) first b) second (plan c)", False, False),  # list marks
        ("", "well :) yes", False, None),
        ("", "（中文）", False, False),
        ("", "no brackets", False, None),
        ("(", "still open", False, None),
    ],
)
def test_brackets(prompt, output, cut, expected):
    assert text_rules.has_unbalanced_brackets(prompt, output, cut=cut) is expected


@pytest.mark.parametrize(
    ("prompt", "output", "cut", "expected"),
    [
        ("def f(x):\n", "    return x\n", False, False),
        ("def f(x):\n", "return x\n", False, True),
        ("def f(x):\n", "    return (x +", True, False),
        ("def f(x):\n", "    return (x +", False, True),
        ("x = 1\n", "y = 2 2\nz = 3\n", True, True),
        ("import os\n", "for f in os.li", True, False),
        ("this is no python at all (\n", "x = 1", False, None),
        ("Write a function.", "Sure:\n```python\ndef f():\n    pass\n```", False, False),
        ("Write a function.", "Sure:\n```python\ndef f()\n    pass\n```", False, True),
    ],
)
def test_python(prompt, output, cut, expected):
    assert text_rules.is_broken_python(prompt, output, cut=cut) is expected


def test_code_of_people_is_never_broken_wherever_it_is_cut():
    for path in sorted((REPOSITORY / "workbench" / "analyses").glob("[a-e]*.py")):
        source = path.read_text()
        ast.parse(source)
        for end in range(40, min(len(source), 4000), 97):
            start = source.index("\n", 20)
            assert not text_rules.is_broken_python(source[:start], source[start:end], cut=True), (path.name, end)


@pytest.mark.parametrize(
    ("text", "count", "wrong"),
    [
        ("12 + 30 = 42", 1, []),
        ("12 + 30 = 43", 1, ["12 + 30 = 43"]),
        ("1 + 2 + 3 = 6 and 2 * 3 = 7", 2, ["2 * 3 = 7"]),
        ("(1 + 2) * 3 = 9", 1, []),
        ("1 + 2 = 4 - 1", 0, []),  # a chain
        ("10 / 4 = 2.5; 10 / 3 = 3.33; 10 / 3 = 3.3", 3, []),
        ("10 / 3 = 3", 1, ["10 / 3 = 3"]),
        ("3 - 5 = -2", 1, []),
        ("1,000 + 1 = 1,001", 1, []),
        ("7 / 0 = 0", 0, []),
        ("a + 1 = 3, x1 + 2 = 3, 2 + 2 == 5, y = 2 + 2", 0, []),
        ("50 + 50 = 100%", 0, []),
    ],
)
def test_equations(text, count, wrong):
    assert text_rules.wrong_equations("", text + "\n", cut=False) == (count, wrong)


def test_an_equation_that_the_limit_may_have_cut_is_left_out():
    assert text_rules.wrong_equations("12 + 30 =", " 4", cut=True) == (0, [])
    assert text_rules.wrong_equations("12 + 30 =", " 4", cut=False) == (1, ["12 + 30 = 4"])
    assert text_rules.wrong_equations("12 + 30 = 41\n", "1 + 1 = 2\n") == (1, [])  # the prompt's own do not count


@settings(deadline=None)
@given(st.integers(0, 999), st.integers(0, 999), st.sampled_from("+-*"), st.integers(-3, 3))
def test_equations_agree_with_python(a, b, sign, off):
    value = {"+": a + b, "-": a - b, "*": a * b}[sign] + off
    count, wrong = text_rules.wrong_equations("", f"{a} {sign} {b} = {value}\n", cut=False)
    assert count == 1
    assert bool(wrong) == (off != 0)


def generations(rows, **columns):
    frame = pd.DataFrame(rows, columns=["sample_id", "prompt", "output"])
    return frame.assign(**({"checkpoint": "c-1", "step": 1, "subset": "english", "finish_reason": "stop"} | columns))


def test_rates_and_their_intervals():
    good = [(f"g{k}", f"p{k}", "A fine sentence.") for k in range(16)]
    bad = [(f"b{k}", f"q{k}", "") for k in range(4)]
    checked = generated_text.check_generations(generations(good + bad))
    row = generated_text.problem_rates(checked).set_index("rule").loc["empty"]
    assert (row["n"], row["prompts"], row["hits"], row["rate"]) == (20, 20, 4, 0.2)
    assert (row["low"], row["high"]) == pytest.approx((0.0807, 0.4160), abs=1e-3)  # Wilson, tabled for 4 of 20
    assert generated_text.worst_examples(checked, "empty")["sample_id"].tolist() == ["b0", "b1", "b2", "b3"]


def test_texts_of_one_prompt_count_once_for_the_interval():
    rows = [("s", "same prompt", "text") for _ in range(100)]
    row = generated_text.problem_rates(generated_text.check_generations(generations(rows))).set_index("rule")
    assert row.loc["empty", ["n", "prompts"]].tolist() == [100, 1]
    assert row.loc["empty", "high"] > 0.7


def test_what_applies_depends_on_what_is_expected():
    rows = [("1", "p", '{"a": 1}'), ("2", "p", '{"a": 1')]
    checked = generated_text.check_generations(generations(rows, expects="json"))
    assert checked["broken_json"].tolist() == [False, True]
    assert checked["broken_python"].isna().all()
    code = generated_text.check_generations(generations([("1", "", "x = (1,\n")], subset="my_python"))
    assert code["broken_python"].tolist() == [True]
    assert code["unbalanced_brackets"].isna().all()
    unknown = generated_text.check_generations(generations(rows, finish_reason=pd.NA))
    assert unknown["truncated"].isna().all()


def test_changes_between_checkpoints():
    before = generations([(str(k), f"p{k}", "A fine sentence.") for k in range(30)])
    after = generations([(str(k), f"p{k}", "" if k < 15 else "Fine.") for k in range(30)], checkpoint="c-2", step=2)
    rates = generated_text.problem_rates(generated_text.check_generations(pd.concat([before, after])))
    changes = generated_text.rate_changes(rates, "c-1", "c-2").set_index("rule")
    assert changes.loc["empty", "change"] == pytest.approx(0.5)
    assert changes.loc["empty", "p_holm"] < 1e-3
    assert changes.loc["repetition", "p_value"] == 1.0
    with pytest.raises(UnknownParameterError, match="no checkpoint 'c-9'"):
        generated_text.rate_changes(rates, "c-9", "c-2")


def test_nothing_in_nothing_out():
    empty = generations([]).astype({"step": "Int64"})
    checked = generated_text.check_generations(empty)
    assert checked.empty
    assert generated_text.problem_rates(checked).empty
    with pytest.raises(UnknownParameterError, match="no rule"):
        generated_text.worst_examples(checked, "boring")
