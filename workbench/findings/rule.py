"""What the diagnosis runs: a rule with the tables that it takes; each topic module ends with its `RULES`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pandas as pd

from workbench.findings.finding import Finding

Tables = Mapping[str, pd.DataFrame]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule and the tables that it takes; without the `needs` it does not run, `uses` may be missing.

    A directory may hold the logs of several jobs. Rules see the latest one, with one row per rank and step; a rule that
    compares jobs (`all_runs`) sees all rows, `training_steps` with a column `run`, and `sources`, the list of files.
    """

    needs: tuple[str, ...]
    find: Callable[[Tables], list[Finding]]
    uses: tuple[str, ...] = ()
    all_runs: bool = False
