"""Parts that compare two runs: their steps, the operators behind the difference, loss, causes and settings."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

import pandas as pd

from workbench.analyses.kernels import compare_kernels, on_host
from workbench.analyses.run_comparison import courses, profiled_parts, recorded_parts
from workbench.analyses.settings import changed_settings
from workbench.analyses.version_change import STEPS_LEAST, slower
from workbench.charts.device_steps import PARTS
from workbench.charts.kernels import kernel_changes_chart
from workbench.charts.run_comparison import courses_chart, parts_chart
from workbench.charts.tables import STYLES, changes_table
from workbench.findings.diagnosis import Diagnosis
from workbench.findings.settings_mismatch import Side, mismatch
from workbench.tables import TABLES
from workbench.widgets.sections import Missing, Tables, Text

RECORDED = {"run": "running", "data_wait": "waiting for data", "compile": "compiling", "checkpoint": "saving",
            "eval": "evaluating", "callbacks": "other callbacks"}  # fmt: skip


def names(first: str, second: str) -> tuple[str, str]:
    """How two runs are told apart: A and B, as they may have one name."""
    return f"A: {first}", f"B: {second}"


def verdict(both: Mapping[str, Tables]) -> Any:
    """Whether the second run is slower beyond the noise of its steps."""
    lacking = _lacking(both, "training_steps")
    if lacking is not None:
        return lacking
    (a, first), (b, second) = both.items()
    found = slower(first["training_steps"], second["training_steps"])
    if found is None:
        return Text(f"One of the runs has fewer than {STEPS_LEAST} steady steps: too few to compare their times.")
    word = "longer" if found.change_share > 0 else "shorter"
    sure = "beyond the noise between blocks of steps" if found.is_real else "within the noise between blocks of steps"
    return Text(
        f"The median step of {b} is {abs(found.change_share):.1%} {word} than that of {a} "
        f"({found.after_us / 1e3:,.2f} against {found.before_us / 1e3:,.2f} ms), {sure}.",
        quiet=False,
    )


def step_parts(both: Mapping[str, Tables], device_steps: Mapping[str, pd.DataFrame]) -> Any:
    """Where a mean step goes in each run: profiled steps where both have some, else recorded ones."""
    if all(len(steps) for steps in device_steps.values()):
        return parts_chart(profiled_parts(device_steps), {part: words for part, (words, _) in PARTS.items()})
    lacking = _lacking(both, "training_steps")
    if lacking is not None:
        return lacking
    runs = {name: (tables["training_steps"], tables.get("events")) for name, tables in both.items()}
    return parts_chart(recorded_parts(runs), RECORDED)


def operators(both: Mapping[str, Tables]) -> Any:
    """Operator types that explain the difference."""
    lacking = _lacking(both, "kernels")
    if lacking is not None:
        return lacking
    first, second = (tables["kernels"] for tables in both.values())
    if on_host(first) != on_host(second):
        return Text("One profile is of a CPU, the other of a device: their operators are not compared.")
    return kernel_changes_chart(compare_kernels(first, second))


def loss(both: Mapping[str, Tables]) -> Any:
    """Loss of both runs."""
    lacking = _lacking(both, "training_steps")
    if lacking is not None:
        return lacking
    rows = courses({name: tables["training_steps"] for name, tables in both.items()}, "loss")
    return courses_chart(rows, "loss", title="Training loss of both runs", unit="loss (nats per token)")


def parting(both: Mapping[str, Tables]) -> Any:
    """Whether the losses begin together and part, and the setting of precision or optimizer behind it."""
    lacking = _lacking(both, "training_steps")
    if lacking is not None:
        return lacking
    sides = [Side(steps=t["training_steps"], settings=_values(t.get("settings")), name=n) for n, t in both.items()]
    found = mismatch(sides[0], sides[1], is_ordered=False)
    if found is None:
        return Text(
            "No setting of precision or optimizer makes the losses part: they do not, or something else differs."
        )
    unknown = [e.fact for e in found.evidence if e.fact.startswith("not known: ")]
    return Text(" ".join([found.title, *(f"{fact[0].upper()}{fact[1:]}." for fact in unknown), found.fix]), quiet=False)


def _values(settings: pd.DataFrame | None) -> dict[str, str]:
    told = pd.DataFrame(columns=["name", "value"]) if settings is None else settings.dropna(subset=["name", "value"])
    return dict(zip(told["name"].astype(str), told["value"].astype(str), strict=True))


def causes(first: Diagnosis, second: Diagnosis) -> pd.DataFrame:
    """What was found in two runs, side by side.

    Returns:
        One row per cause word and playbook of either: cause, in (`both`, `A`, `B`), A and B (titles, one a line;
        empty where it was not found). Causes of one run only come first, then in the order of the diagnoses.
    """
    titles: dict[str, dict[str, list[str]]] = {}
    for run, diagnosis in (("A", first), ("B", second)):
        for finding in diagnosis.causes:
            titles.setdefault(finding.cause, {"A": [], "B": []})[run].append(finding.title)
    rows = [
        {"cause": cause, "in": "both" if found["A"] and found["B"] else "A" if found["A"] else "B"}
        | {run: "\n".join(found[run]) for run in ("A", "B")}
        for cause, found in titles.items()
    ]
    table = pd.DataFrame(rows, columns=["cause", "in", "A", "B"])
    return table.sort_values("in", key=lambda column: column == "both", kind="stable", ignore_index=True)


def causes_table(first: Diagnosis | None, second: Diagnosis | None) -> Any:
    """The same as a table."""
    if first is None or second is None:
        return Text("The causes are being looked for.")
    found = causes(first, second)
    if found.empty:
        return Text("Nothing was found in either run.", quiet=False)
    shown = found.assign(**{run: found[run].map(lambda t: html.escape(t).replace("\n", "<br>")) for run in ("A", "B")})
    wrapped = {"selector": "td", "props": "white-space:normal;vertical-align:top;text-align:left"}
    return shown.style.hide(axis="index").set_table_styles([*STYLES, wrapped]).set_caption("What was found")


def settings(both: Mapping[str, Tables]) -> Any:
    """Settings that differ."""
    lacking = _lacking(both, "settings")
    if lacking is not None:
        return lacking
    first, second = (tables["settings"] for tables in both.values())
    changed = changed_settings(first, second)
    if changed.empty:
        return Text("No recorded setting differs.")
    return changes_table(changed).set_caption("Settings that differ")


def _lacking(both: Mapping[str, Tables], table: str) -> Missing | None:
    without = [name for name, tables in both.items() if table not in tables]
    if not without:
        return None
    return Missing(f"{' and '.join(without)}: no rows of table {table}. To have them: {TABLES[table].fix}.", table="")
