"""Instructions that a program can check -> which texts follow them, and pass rates per kind and subset."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from workbench.analyses.evaluation import MODEL_STATE
from workbench.analyses.generated_text import as_constraints, wilson_interval
from workbench.analyses.text_rules import FENCE, scripts, units
from workbench.tables import GENERATIONS

Check = Callable[[str, Mapping[str, Any]], bool]


def _words(text: str) -> int:
    return sum(1 for u in units(text) if u[0].isalnum())


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines() if line.strip()]


def _is_json(text: str, given: Mapping[str, Any]) -> bool:
    block = FENCE.search(text)
    try:
        value = json.loads(block.group(2) if block else text)
    except (ValueError, RecursionError):
        return False
    keys = given.get("keys") or []
    return not keys or (isinstance(value, dict) and set(keys) <= set(value))


def _in_script(text: str, given: Mapping[str, Any]) -> bool:
    letters = scripts(text)
    total = sum(letters.values())
    return total > 0 and letters[str(given["script"]).upper()] >= 0.9 * total


CHECKS: Mapping[str, Check] = {
    "equals": lambda text, c: text.strip() == str(c["value"]).strip(),
    "first_line_equals": lambda text, c: (_lines(text) or [""])[0] == str(c["value"]).strip(),
    "starts_with": lambda text, c: text.lstrip().startswith(str(c["value"])),
    "ends_with": lambda text, c: text.rstrip().endswith(str(c["value"])),
    "includes": lambda text, c: str(c["value"]).lower() in text.lower(),
    "excludes": lambda text, c: str(c["value"]).lower() not in text.lower(),
    "matches": lambda text, c: re.search(str(c["pattern"]), text) is not None,
    "at_most_words": lambda text, c: _words(text) <= int(c["count"]),
    "at_least_words": lambda text, c: _words(text) >= int(c["count"]),
    "lines": lambda text, c: len(_lines(text)) == int(c["count"]),
    "bullets": lambda text, c: sum(bool(re.match(r"[-*•]\s", n)) for n in _lines(text)) == int(c["count"]),
    "json": _is_json,
    "lower_case": lambda text, c: text == text.lower() and any(x.isalpha() for x in text),
    "upper_case": lambda text, c: text == text.upper() and any(x.isalpha() for x in text),
    "script": _in_script,
}


def check_instructions(generations: pd.DataFrame) -> pd.DataFrame:
    """Whether each text follows its instructions.

    Args:
        generations: table `generations`; `constraints` is a JSON list like `[{"kind": "at_most_words", "count": 50}]`,
            kinds as in `CHECKS`.

    Returns:
        One row per text and instruction: checkpoint, step, subset, sample_id, prompt, output, kind, constraint (JSON),
        passed (missing where the kind is unknown or lacks its value). Texts without instructions are left out.
    """
    given = GENERATIONS.check(generations)
    rows = []
    for row in given[given["constraints"].notna()].to_dict("records"):
        for constraint in as_constraints(str(row["constraints"])):
            place = {c: row[c] for c in (*MODEL_STATE, "subset", "sample_id", "prompt", "output")}
            kind = str(constraint.get("kind"))
            shown = json.dumps(constraint, ensure_ascii=False)
            rows.append({**place, "kind": kind, "constraint": shown, "passed": _passed(str(row["output"]), constraint)})
    columns = [*MODEL_STATE, "subset", "sample_id", "prompt", "output", "kind", "constraint", "passed"]
    dtypes = {"checkpoint": "string", "step": "Int64", "subset": "string", "passed": "boolean"}
    return pd.DataFrame(rows, columns=columns).astype(dtypes)


def instruction_rates(checked: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """Share of instructions followed, per model state, subset and kind.

    Several texts of one prompt count as one for the interval.

    Returns:
        One row per (checkpoint, step, subset, kind): n, prompts, passed, rate, low, high (Wilson), unknown
        (instructions that cannot be checked).
    """
    rows = []
    for key, part in checked.groupby([*MODEL_STATE, "subset", "kind"], dropna=False):
        known = part[part["passed"].notna()]
        place = dict(zip([*MODEL_STATE, "subset", "kind"], key, strict=True))
        passed, prompts = int(known["passed"].astype(bool).sum()), int(known["sample_id"].nunique())
        rate = passed / len(known) if len(known) else float("nan")
        low, high = wilson_interval(rate, prompts, confidence=confidence) if len(known) else (rate, rate)
        rows.append({**place, "n": len(known), "prompts": prompts, "passed": passed, "rate": rate, "low": low,
                     "high": high, "unknown": len(part) - len(known)})  # fmt: skip
    columns = [*MODEL_STATE, "subset", "kind", "n", "prompts", "passed", "rate", "low", "high", "unknown"]
    return pd.DataFrame(rows, columns=columns)


def _passed(output: str, constraint: Mapping[str, Any]) -> bool | None:
    check = CHECKS.get(str(constraint.get("kind")))
    try:
        return None if check is None else check(output, constraint)
    except (KeyError, ValueError, TypeError, re.error):  # the instruction lacks its value, or has an odd one
        return None
