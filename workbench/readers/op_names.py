"""Names of operators as MindSpore writes them -> their type, and whether they communicate."""

from __future__ import annotations

import re

import pandas as pd

_NUMBER = re.compile(r"-op\d+.*$")
_COMMUNICATION = (
    r"(?i)^(?:hcom_|mccl|nccl)|^(?:all_?reduce|all_?gather(?:v|intotensor)?|reduce_?scatter|all_?to_?all(?:v)?"
    r"|neighborexchange|broadcast|barrier|send|receive|recv|collective(?:gather|scatter)|batchisendirecv)$"
)


def op_types(names: pd.Series) -> pd.Series:
    """Type of each operator: `Default/network/MatMul-op12` is a `MatMul`."""
    last = names.astype("string").str.rsplit("/", n=1).str[-1]
    return last.str.replace(_NUMBER, "", regex=True)


def communicates(types: pd.Series) -> pd.Series:
    """Whether operators of these types are collectives, sends or receives; missing where the type is."""
    return types.astype("string").str.contains(_COMMUNICATION, regex=True).astype("boolean")
