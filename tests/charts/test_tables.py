import pandas as pd

from tests.made_run import made_samples, made_steps
from workbench.analyses.settings import changed_settings
from workbench.analyses.summaries import efficiency_summary, quality_summary
from workbench.charts.tables import changes_table, measures_table, plain_table, quality_table


def test_quality_table_shows_intervals_and_verdicts():
    samples = pd.concat([made_samples("c-1", 1), made_samples("c-2", 2, better=0.3, worse=["code", "长文本"])])
    text = quality_table(quality_summary(samples, "c-2")).to_html()
    assert "change of the loss against previous, also the best: c-1" in text
    assert "better" in text
    assert "36 / 12" in text
    assert "长文本" in text


def test_first_checkpoint_and_a_diverged_one():
    samples = made_samples("c-1", 1)
    assert "against" not in quality_table(quality_summary(samples, "c-1")).to_html()
    broken = samples.assign(loss_nats=float("nan"))
    assert "not a number" in quality_table(quality_summary(broken, "c-1")).to_html()


def test_measures_have_units_and_shares_are_percent():
    text = measures_table(efficiency_summary(made_steps(60))).to_html()
    assert "tokens per s" in text
    assert "%" in text


def test_cells_are_escaped():
    settings = pd.DataFrame({"name": ["config.a"], "value": ["<script>alert(1)</script>"]})
    text = changes_table(changed_settings(settings.assign(value="1"), settings)).to_html()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


def test_a_plain_table_has_units_behind_the_names_and_no_row_numbers():
    frame = pd.DataFrame(
        {"rank_id": [3], "transfer_us_per_step": [1234.5678], "slow_share": [0.25], "op_type": ["<a>"]}
    )
    page = plain_table(frame).to_html()
    for words in ("rank</th>", "transfer per step, µs", "slow, share", "op type", "1,234.6", "0.250", "&lt;a&gt;"):
        assert words in page
    odd = pd.DataFrame({"size_bytes": [603979776.0, None], "ratio": [float("inf"), 0.5]})
    page = plain_table(odd).to_html()
    assert ">603,979,776</td>" in page
    assert ">inf</td>" in page
    assert ">nan</td>" not in page
    assert plain_table(frame.set_index("rank_id")).data.columns[0] == "rank"
    consecutive = pd.DataFrame({"wait_us": [1.0, 2.0]}, index=pd.RangeIndex(2, name="rank_id"))
    assert plain_table(consecutive).data.columns[0] == "rank"
