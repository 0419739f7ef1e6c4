"""What the diagnosis runs: a rule with its causes and tables; each topic module ends with its `RULES`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pandas as pd

from workbench.findings.finding import Finding

Tables = Mapping[str, pd.DataFrame]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule, the causes that it can find, and the tables that it takes.

    Without the `needs` it does not run, `uses` may be missing; of `needs_any`, where it names tables, one has to be
    there.

    A directory may hold the logs of several jobs. Rules see the latest one, with one row per rank and step; a rule that
    compares jobs (`all_runs`) sees all rows, `training_steps` with a column `run`, and `sources`, the list of files.
    """

    causes: tuple[str, ...]  # all that it can find, words of `finding.CAUSES`
    needs: tuple[str, ...]
    find: Callable[[Tables], list[Finding]]
    uses: tuple[str, ...] = ()
    needs_any: tuple[str, ...] = ()
    all_runs: bool = False

    def can_run(self, tables: Tables) -> bool:
        """Whether the tables are there that it cannot do without."""
        some = not self.needs_any or any(name in tables for name in self.needs_any)
        return some and all(name in tables for name in self.needs)
