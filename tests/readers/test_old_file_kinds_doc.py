"""docs/file_kinds.md against the kinds in the code: old profiles, pipelines, summaries and trackers."""

import re
from pathlib import Path

from workbench.readers import (
    event_files,
    host_info,
    host_profile,
    legacy_facts,
    legacy_hccl,
    legacy_steps,
    legacy_tasks,
    legacy_totals,
    memory_tracker,
    minddata,
    minddata_batches,
    minddata_cpu,
    minddata_summary,
    monitor_tables,
    parallel_strategy,
    runtime_profiler,
)

MODULES = (
    event_files, host_info, host_profile, legacy_facts, legacy_hccl, legacy_steps, legacy_tasks, legacy_totals,
    memory_tracker, minddata, minddata_batches, minddata_cpu, minddata_summary, monitor_tables, parallel_strategy,
    runtime_profiler,
)  # fmt: skip
ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| `(\w+)` \| .* \| ([a-z_, ]+)(?: \(a note\))? \| .* \| (test_\w+\.py) \|$", re.MULTILINE)


def test_every_kind_is_listed_with_its_tables_and_an_existing_test():
    listed = {name: (tables.split(", "), test) for name, tables, test in ROW.findall(_document())}
    for module in MODULES:
        for kind in module.KINDS:
            tables, test = listed[kind.name]
            assert set(tables) == set(kind.tables), kind.name
            assert f'"{kind.name}"' in (ROOT / "tests/readers" / test).read_text()


def _document() -> str:
    return (ROOT / "docs/file_kinds.md").read_text()
