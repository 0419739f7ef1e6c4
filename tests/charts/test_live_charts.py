"""The scripts of live charts: bundled once, kept beside other derived data, taken from there by the next kernel."""

import altair as alt
import pytest

from workbench.charts import theme


@pytest.fixture
def new_kernel(monkeypatch, tmp_path):
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(alt.JupyterChart, "_esm", "loads from the net")
    monkeypatch.setattr(alt.JupyterChart, "_is_offline", False)
    return tmp_path / "cache"


def test_the_scripts_are_bundled_once(new_kernel, monkeypatch):
    theme.prepare_live_charts()
    bundled = alt.JupyterChart._esm
    assert len(bundled) > 100_000
    monkeypatch.setattr(alt.JupyterChart, "_is_offline", False)
    monkeypatch.setattr(alt.JupyterChart, "_esm", "loads from the net")
    monkeypatch.setattr(alt.JupyterChart, "enable_offline", lambda: pytest.fail("bundled again"))
    theme.prepare_live_charts()
    assert alt.JupyterChart._esm == bundled
    assert alt.JupyterChart._is_offline


def test_a_cache_that_cannot_be_written_to_costs_time_only(new_kernel):
    new_kernel.write_text("a file where the folder should be")
    theme.prepare_live_charts()
    assert len(alt.JupyterChart._esm) > 100_000
