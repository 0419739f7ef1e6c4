from pathlib import Path

import pytest

from workbench.readers.column_aliases import COLUMN_ALIASES, Alias, know, normal_header

DOCS = Path(__file__).parents[2] / "docs" / "csv_columns.md"


def row(column: str, alias: Alias) -> str:
    """The line of the documentation that belongs to an entry of the table."""
    spellings = " ".join(f"`{s}`" for s in alias.spellings)
    alone = "".join(f" `{s}`" for s in alias.alone)
    units = " ".join(f"`{unit or '-'}`" for unit in alias.units)
    return f"| `{column}` | {alias.role} | {alias.meaning} | {spellings} | {units} |{alone} |"


@pytest.mark.parametrize("column", COLUMN_ALIASES)
def test_documentation_has_the_whole_table(column):
    assert row(column, COLUMN_ALIASES[column]) in DOCS.read_text().splitlines()


@pytest.mark.parametrize(
    ("header", "column", "factor"),
    [
        ("step", "step", 1),
        ("Iteration", "step", 1),
        ("Step Time (ms)", "step_us", 1e3),
        ("step_time_s", "step_us", 1e6),
        ("step_ms", "step_us", 1e3),
        ("GradNorm", "gradient_norm", 1),
        ("LR", "learning_rate", 1),
        ("tokens/s", "tokens_per_s", 1),
        ("tokens_per_s", "tokens_per_s", 1),
        ("tokens", "tokens", 1),
        ("samples/s/p", "samples_per_s", 1),
        ("allocated_mb", "device_allocated_bytes", 1024**2),
        ("Reserved (GiB)", "device_reserved_bytes", 1024**3),
        ("rss_anon_mib", "host_memory_bytes", 1024**2),
        ("aicore_util(%)", "device_utilization_share", 0.01),
        ("cpu_util_pct", "host_cpu_share", 0.01),
        ("score_pct", "score", 0.01),
        ("score", "score", 1),
        ("TFLOPs", "flops_per_s", 1e12),
        ("timestamp", "time_ns", 0),
        ("time_s", "time_ns", 1e9),
    ],
)
def test_spellings_and_units(header, column, factor):
    found = know(header)
    assert found is not None
    assert (found.column, found.factor) == (column, factor)


@pytest.mark.parametrize("header", ["step_time", "allocated", "memory", "foo", "", "loss_ms", "step_time_mb"])
def test_without_its_unit_or_with_a_wrong_one_it_is_unknown(header):
    assert know(header) is None


def test_no_header_stands_for_two_columns():
    headers = [
        f"{spelling}_{unit}" if unit else spelling
        for alias in COLUMN_ALIASES.values()
        for spelling in alias.spellings
        for unit in alias.units
    ] + [spelling for alias in COLUMN_ALIASES.values() for spelling in alias.alone]
    assert len(headers) == len(set(headers))


def test_normal_form():
    assert normal_header("  Step Time (ms) ") == "step_time_ms"
    assert normal_header("AICore Util[%]") == "aicore_util_pct"
