"""Tables of a data pipeline -> charts: operators with queues, waits per batch, times under a setting, predictions."""

from __future__ import annotations

import altair as alt
import pandas as pd

from workbench.charts.theme import BLUE, GREY, INK, ORANGE, QUIET, RED, AnyChart, empty_chart

ROW_HEIGHT = 44


def operators_chart(operators: pd.DataFrame, found: pd.DataFrame, *, rank_id: int | None = None) -> AnyChart:
    """The pipeline from its sources (top) to training (bottom): fill of the queue behind each operator.

    Args:
        operators: as `workbench.analyses.data_pipeline.pipeline_operators` returns.
        found: as `bottleneck` returns; the operator that holds the pipeline back is red.
        rank_id: rank to show, the first one by default.
    """
    if operators.empty:
        return empty_chart("Operators of the data pipeline")
    rank = int(operators["rank_id"].iloc[0]) if rank_id is None else rank_id
    rows = operators[operators["rank_id"] == rank]
    culprit = found.loc[found["rank_id"] == rank, "name"].iloc[0]
    shown = rows.assign(
        fill=rows["output_fill_share"].clip(0, 1),
        is_culprit=rows["name"] == culprit,
        about=[_about(row) for row in rows.to_dict("records")],
    )[["name", "fill", "is_culprit", "about", "num_workers", "cpu_cores", "input_fill_share"]]
    y = alt.Y("name:N", sort=list(rows["name"]), title="sources first", axis=alt.Axis(labelFontSize=13))
    bars = (
        alt.Chart(shown.dropna(subset=["fill"]))
        .mark_bar(height=16)
        .encode(
            y=y,
            x=alt.X(
                "fill:Q", title="queue behind the operator, mean fill", axis=alt.Axis(format="%"),
                scale=alt.Scale(domain=[0, 1]),
            ),
            color=alt.condition("datum.is_culprit", alt.value(RED), alt.value(BLUE)),
            tooltip=["name:N", alt.Tooltip("fill:Q", format=".0%"), alt.Tooltip("cpu_cores:Q", format=".2f")],
        )
    )  # fmt: skip
    words = (
        alt.Chart(shown)
        .mark_text(align="left", dx=6, dy=-15, fontSize=12)
        .encode(y=y, x=alt.value(0), text="about:N",
                color=alt.condition("datum.is_culprit", alt.value(RED), alt.value(QUIET)))
    )  # fmt: skip
    held = "the pipeline keeps up" if not isinstance(culprit, str) else f"{culprit} holds it back"
    title = alt.Title("Operators of the data pipeline", subtitle=f"rank {rank}: {held}")
    return alt.layer(bars, words).properties(height=ROW_HEIGHT * len(rows), title=title)


def batch_waits_chart(curve: pd.DataFrame) -> AnyChart | alt.VConcatChart:
    """How long training waited for each batch, and how many batches were ready when it was taken.

    Args:
        curve: as `workbench.analyses.data_pipeline.wait_curve` returns.
    """
    if curve.empty:
        return empty_chart("Wait for each batch")
    few = curve.assign(wait_ms=curve["wait_us"] / 1e3)[["batch", "wait_ms", "queue_size"]]
    last = float(few["batch"].max())
    x = alt.X("batch:Q", title="batch", scale=alt.Scale(domain=[0, last + 1], nice=False))
    tips = ["batch:Q", alt.Tooltip("wait_ms:Q", format=".1f"), "queue_size:Q"]
    waits = (
        alt.Chart(few, title="Wait for each batch")
        .mark_bar(color=ORANGE, width=2)
        .encode(x=x, y=alt.Y("wait_ms:Q", title="wait, ms"), tooltip=tips)
        .properties(height=130)
    )
    queue = (
        alt.Chart(few, title="Batches ready when it was taken")
        .mark_line(color=BLUE)
        .encode(x=x, y=alt.Y("queue_size:Q", title="batches"), tooltip=tips)
        .properties(height=110)
    )
    return alt.vconcat(waits, queue)


def operator_times_chart(times: pd.DataFrame, *, batch_us: float, step_us: float = 0.0) -> AnyChart:
    """Time that each operator takes for one batch under a setting, against the pipeline's and the step's.

    Args:
        times: as `workbench.analyses.pipeline_rates.operator_times` returns.
        batch_us: predicted time between batches.
        step_us: time of a training step, 0 if unknown.
    """
    shown = times.assign(
        batch_ms=times["batch_us"] / 1e3,
        side=[f"{n} {'process' if p else 'worker'}{'' if n == 1 else 'es' if p else 's'}"
              for n, p in zip(times["workers"], times["processes"], strict=True)],
    )  # fmt: skip
    y = alt.Y("name:N", sort=list(times["name"]), title="sources first")
    bars = (
        alt.Chart(shown)
        .mark_bar(color=BLUE, height=16)
        .encode(y=y, x=alt.X("batch_ms:Q", title="ms per batch"), tooltip=["name:N", "side:N", "batch_ms:Q"])
    )
    words = alt.Chart(shown).mark_text(align="left", dx=5, color=QUIET).encode(y=y, x="batch_ms:Q", text="side:N")
    lines = pd.DataFrame([{"at": batch_us / 1e3, "what": "the pipeline"}, {"at": step_us / 1e3, "what": "a step"}])
    rules = (
        alt.Chart(lines[lines["at"] > 0])
        .mark_rule(strokeWidth=2)
        .encode(
            x="at:Q",
            color=alt.Color(
                "what:N",
                scale=alt.Scale(domain=["the pipeline", "a step"], range=[RED, INK]),
                legend=alt.Legend(title=None),
            ),
        )
    )
    return alt.layer(bars, words, rules).properties(
        height=30 * len(times), title="What each operator takes for one batch"
    )


def predictions_chart(settings: pd.DataFrame) -> AnyChart:
    """Predicted time between batches with its interval (bar), and the measured one (dot), per setting.

    Args:
        settings: as `workbench.analyses.pipeline_tuning.predict` returns, with measured_us where it was measured.
    """
    if settings.empty:
        return empty_chart("Predicted and measured", "nothing predicted yet")
    shown = settings.assign(
        number=range(1, len(settings) + 1),
        predicted_ms=settings["batch_us"] / 1e3,
        low_ms=settings["low_us"] / 1e3,
        high_ms=settings["high_us"] / 1e3,
        measured_ms=settings.get("measured_us", pd.Series(dtype="float64")).reindex(settings.index) / 1e3,
    )
    base = alt.Chart(shown).encode(y=alt.Y("number:O", title="setting"))
    tips = ["setting:N", *(alt.Tooltip(f"{c}_ms:Q", format=".2f") for c in ("predicted", "low", "high", "measured"))]
    x = alt.X("low_ms:Q", title="ms between batches", scale=alt.Scale(zero=True))
    spans = base.mark_bar(color=GREY, opacity=0.4, height=14).encode(x=x, x2="high_ms:Q", tooltip=tips)
    ticks = base.mark_tick(color=BLUE, thickness=3, height=16).encode(x="predicted_ms:Q", tooltip=tips)
    dots = base.transform_filter("isValid(datum.measured_ms)").mark_point(color=RED, filled=True, size=90)
    title = alt.Title("Predicted and measured", subtitle="blue: predicted, grey: its 95 % interval, red: measured")
    dots = dots.encode(x="measured_ms:Q", tooltip=tips)
    words = base.mark_text(align="left", dx=6, dy=-15, color=QUIET, fontSize=12).encode(
        x=alt.value(0), text="setting:N"
    )
    return alt.layer(spans, ticks, dots, words).properties(height=ROW_HEIGHT * len(shown), title=title)


def _about(row: dict[str, object]) -> str:
    """Workers and processor use, in words."""
    parts = []
    if pd.notna(row["num_workers"]):
        parts.append(f"{int(str(row['num_workers']))} worker{'' if row['num_workers'] == 1 else 's'}")
    if pd.notna(row["cpu_cores"]):
        parts.append(f"{float(str(row['cpu_cores'])):.2f} cores")
    if pd.isna(row["output_fill_share"]):
        parts.append("no queue")
    return " · ".join(parts)
