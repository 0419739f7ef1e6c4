"""Names of operators as MindSpore writes them -> their type, and whether they communicate."""

from __future__ import annotations

import re
from collections.abc import Callable

import pandas as pd

_NUMBER = re.compile(r"-op\d+.*$")
_COMMUNICATION = (
    r"(?i)^(?:hcom_|mccl|nccl)|^(?:all_?reduce|all_?gather(?:v|intotensor)?|reduce_?scatter|all_?to_?all(?:v)?"
    r"|neighborexchange|broadcast|barrier|send|receive|recv|collective(?:gather|scatter)|batchisendirecv)$"
)


def op_types(names: pd.Series) -> pd.Series:
    """Type of each operator: `Default/network/MatMul-op12` is a `MatMul`."""
    return _by_distinct(names, "string", lambda t: t.str.rsplit("/", n=1).str[-1].str.replace(_NUMBER, "", regex=True))


def communicates(types: pd.Series) -> pd.Series:
    """Whether operators of these types are collectives, sends or receives; missing where the type is."""
    return _by_distinct(types, "boolean", lambda t: t.str.contains(_COMMUNICATION, regex=True))


def _by_distinct(texts: pd.Series, dtype: str, judge: Callable[[pd.Series], pd.Series]) -> pd.Series:
    """`judge` of each text, asked once per distinct one: a profile has millions of calls of a few operators."""
    codes, distinct = pd.factorize(texts.astype("string"))
    answers = judge(pd.Series(distinct, dtype="string")).astype(dtype).array
    return pd.Series(answers.take(codes, allow_fill=True), index=texts.index, dtype=dtype)
