"""Variants, diversity and instructions against values worked out by hand."""

import json

import numpy as np
import pandas as pd
import pytest

from workbench.analyses.diversity import diversity, self_bleu
from workbench.analyses.instructions import CHECKS, check_instructions, instruction_rates
from workbench.analyses.variants import variant_changes
from workbench.errors import UnknownParameterError


def variants(effect: float, *, documents=12, seed=0) -> pd.DataFrame:
    """3 samples of 10 tokens per document, scored as they are and with typos that add `effect` nats per token."""
    random = np.random.default_rng(seed)
    rows = []
    for d in range(documents):
        for k in range(3):
            loss = 20 + random.normal(0, 5)
            for variant, more in (("original", 0.0), ("typos", 10 * effect + random.normal(0, 0.1))):
                rows.append(("robustness", variant, "c", 5, "english", f"{d}#{k}", str(d), 10.0, loss + more))
    columns = ["dimension", "variant", "checkpoint", "step", "subset", "sample_id", "document_id", "scored_tokens",
               "loss_nats"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def test_the_cost_of_a_variant_is_paired():
    row = variant_changes(variants(0.05), "robustness").iloc[0]
    # samples differ by 0.5 nats per token among each other, pairs by 0.01
    assert row["change"] == pytest.approx(0.05, abs=0.01)
    assert row["low"] > 0.03
    assert row["p_holm"] < 1e-4
    assert (row["n"], row["documents"]) == (36, 12)
    assert row["loss"] - row["original"] == pytest.approx(row["change"])


def test_samples_scored_on_one_side_only_do_not_count():
    table = variants(0.05)
    gone = (table["variant"] == "typos") & (table["document_id"] == "0")
    row = variant_changes(table[~gone], "robustness").iloc[0]
    assert (row["n"], row["documents"]) == (33, 11)
    with pytest.raises(UnknownParameterError, match="context_length"):
        variant_changes(table, "context_length")


def generations(texts: dict[str, list[str]], **columns) -> pd.DataFrame:
    rows = [
        {"sample_id": p, "repeat": k, "prompt": p, "output": t} for p, ts in texts.items() for k, t in enumerate(ts)
    ]
    return pd.DataFrame(rows).assign(**({"checkpoint": "c", "step": 1, "subset": "s", "temperature": 0.8} | columns))


def test_distinct_n_over_all_texts():
    table = diversity(generations({"p": ["a b a b"], "q": ["a c"]})).set_index("measure")
    assert table.loc["distinct_1", "value"] == pytest.approx(3 / 6)
    assert table.loc["distinct_2", "value"] == pytest.approx(3 / 4)  # ab, ba, ac of ab, ba, ab, ac
    assert table.loc["distinct_3", "value"] == pytest.approx(2 / 2)
    # jackknife: without p 2/2, without q 2/4; error sqrt(1/2 * sum((x - mean)^2)) = 0.25, t(1) = 12.7
    assert table.loc["distinct_1", "low"] == 0.0
    assert "self_bleu" not in table.index


def test_self_bleu_is_one_for_equal_texts_and_low_for_different_ones():
    assert self_bleu(["the cat sat on the mat"] * 3) == pytest.approx(1.0)
    assert self_bleu(["the cat sat on the mat", "nobody knows why it rained so"]) < 0.1
    assert self_bleu(["alone"]) is None
    same = {f"p{k}": ["one two three four five"] * 4 for k in range(5)}
    table = diversity(generations(same)).set_index("measure")
    assert table.loc["self_bleu", ["value", "low", "high"]].tolist() == pytest.approx([1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("constraint", "passes", "fails"),
    [
        ({"kind": "equals", "value": "42"}, " 42\n", "42."),
        ({"kind": "first_line_equals", "value": 42}, " 42\nmore", "421"),
        ({"kind": "starts_with", "value": "Dear"}, "\nDear Sir", "My dear"),
        ({"kind": "ends_with", "value": "Bye."}, "So. Bye. ", "Bye"),
        ({"kind": "includes", "value": "Cat"}, "the cat", "the dog"),
        ({"kind": "excludes", "value": "cat"}, "the dog", "Cat"),
        ({"kind": "matches", "pattern": r"\d{4}"}, "in 2024", "in 24"),
        ({"kind": "at_most_words", "count": 3}, "one, two - three", "one two three four"),
        ({"kind": "at_least_words", "count": 3}, "one two three", "one two !"),
        ({"kind": "lines", "count": 2}, "a\n\nb\n", "a"),
        ({"kind": "bullets", "count": 2}, "- a\n* b", "- a"),
        ({"kind": "json", "keys": ["a"]}, '```json\n{"a": 1}\n```', '{"b": 1}'),
        ({"kind": "lower_case"}, "abc 1", "Abc"),
        ({"kind": "upper_case"}, "ABC 1", "123"),
        ({"kind": "script", "script": "cjk"}, "今天天气 42", "today 今"),
    ],
    ids=lambda v: v["kind"] if isinstance(v, dict) else "",
)
def test_each_kind_of_instruction(constraint, passes, fails):
    table = generations({"p": [passes, fails]}, constraints=json.dumps([constraint]))
    assert check_instructions(table)["passed"].tolist() == [True, False]


def test_every_kind_is_tested():
    kinds = {c["kind"] for c, _, _ in test_each_kind_of_instruction.pytestmark[0].args[1]}
    assert kinds == set(CHECKS)


def test_unknown_and_incomplete_instructions_are_counted_apart():
    table = generations({"p": ["x"]}, constraints=json.dumps([{"kind": "rhymes"}, {"kind": "lines"}]))
    rates = instruction_rates(check_instructions(table))
    assert rates[["n", "unknown"]].to_numpy().tolist() == [[0, 1], [0, 1]]
    assert rates["rate"].isna().all()
    assert check_instructions(generations({"p": ["x"]})).empty


def test_rates_count_prompts_for_their_interval():
    texts = {f"p{k}": ["yes" if k < 5 else "no"] * 10 for k in range(10)}
    table = generations(texts, constraints=json.dumps([{"kind": "equals", "value": "yes"}]))
    row = instruction_rates(check_instructions(table)).iloc[0]
    assert (row["n"], row["prompts"], row["rate"]) == (100, 10, 0.5)
    assert (row["low"], row["high"]) == pytest.approx((0.2366, 0.7634), abs=1e-3)  # Wilson, 5 of 10
