"""Tables of recorded steps -> charts. Each takes at most a few thousand rows: use `analyses.downsample` before."""

from __future__ import annotations

import altair as alt
import pandas as pd

from workbench.charts.theme import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    QUIET,
    RED,
    SKY,
    AnyChart,
    empty_chart,
    log_axis,
    swatches,
)  # fmt: skip

SMOOTH_ROWS = 25  # that the thick line of the loss averages: the last ones, as a jump must not show before it
MAX_GROUP_LINES = 7  # more groups become a heat map: more colours cannot be told apart
CAUSE_COLOURS = {
    "checkpoint": BLUE, "eval": GREEN, "compile": PURPLE, "data_wait": ORANGE, "gc": SKY, "profile": GREY,
    "callbacks": "#6f4e37", "unknown": RED,
}  # fmt: skip
PART_COLOURS = {
    "run": "#b9d6ea", "data_wait": ORANGE, "compile": PURPLE, "checkpoint": BLUE, "eval": GREEN, "callbacks": "#6f4e37",
}  # fmt: skip
MEMORY_NAMES = {
    "host_memory_bytes": "host, resident",
    "device_allocated_bytes": "device, allocated",
    "device_reserved_bytes": "device, reserved",
}
SHARE_SHOWN = 0.0005  # half a pixel
TOOLTIP_MS = ("wall_ms", "lost_ms")
LOG = alt.Scale(type="log", nice=False)
STEP = alt.X("step:Q", title="step", scale=alt.Scale(nice=False))


def loss_chart(job: pd.DataFrame) -> AnyChart:
    """Loss over steps (table `job_steps`), thin as recorded, thick smoothed.

    The band spans the ranks, a red line marks a loss that is not a number.
    """
    if not job["loss"].notna().any():
        return empty_chart("Training loss", "no step has a loss")
    y = alt.Y("loss:Q", title="loss (nats per token)", scale=alt.Scale(zero=False))
    base = alt.Chart(job).encode(x=STEP)
    band = base.mark_area(opacity=0.2, color=BLUE).encode(
        alt.Y("loss_low:Q", title="loss (nats per token)", scale=alt.Scale(zero=False)), alt.Y2("loss_high:Q")
    )
    line = base.mark_line(color=SKY, strokeWidth=1).encode(y=y, tooltip=["step:Q", alt.Tooltip("loss:Q", format=".4f")])
    smooth = base.transform_window(smooth="mean(loss)", frame=[1 - SMOOTH_ROWS, 0])
    smooth = smooth.mark_line(color=BLUE).encode(y="smooth:Q")
    broken = job.loc[~job["loss_finite"].astype(bool), ["step"]]
    marks = alt.Chart(broken).mark_rule(color=RED, strokeWidth=1.5).encode(x=STEP, tooltip=["step:Q"])
    lost = f"; red: not a number at {len(broken)} of the steps shown" if len(broken) else ""
    subtitle = f"thin: as recorded; thick: mean of the last {SMOOTH_ROWS}{lost}"
    layers = (band, line, smooth, marks) if len(broken) else (band, line, smooth)
    return alt.layer(*layers).properties(title=_title("Training loss", subtitle))


def gradient_norm_chart(job: pd.DataFrame) -> AnyChart:
    """Global gradient norm before clipping over steps, log scale; triangles on top mark overflow."""
    known = job[job["gradient_norm"] > 0]
    if known.empty:
        return empty_chart("Gradient norm")
    line = (
        alt.Chart(known)
        .mark_line(color=BLUE)
        .encode(
            x=STEP,
            y=alt.Y(
                "gradient_norm:Q",
                title="gradient norm (L2, log scale)",
                scale=LOG,
                axis=log_axis(known["gradient_norm"]),
            ),
            tooltip=["step:Q", alt.Tooltip("gradient_norm:Q", format=".4g")],
        )
    )
    overflowed = job.loc[job["overflow"].fillna(False).astype(bool), ["step"]]
    marks = (
        alt.Chart(overflowed)
        .mark_point(shape="triangle-down", color=RED, filled=True, size=60)
        .encode(x=STEP, y=alt.value(6), tooltip=["step:Q"])
    )
    lost = f"; red triangles: overflow at {len(overflowed)} of the steps shown" if len(overflowed) else ""
    layers = (line, marks) if len(overflowed) else (line,)
    return alt.layer(*layers).properties(title=_title("Gradient norm", f"before clipping{lost}"))


def learning_rate_chart(job: pd.DataFrame) -> AnyChart:
    """Learning rate over steps."""
    return _line(job, "learning_rate", "Learning rate", "learning rate", ".3g").properties(height=140)


def group_ratio_chart(ratios: pd.DataFrame) -> AnyChart:
    """Gradient norm / parameter norm per group over steps (step, group, gradient_parameter_ratio), log scale."""
    positive = ratios[ratios["gradient_parameter_ratio"] > 0]
    if positive.empty:
        return empty_chart("Gradient to parameter ratio per group")
    title, axis = "gradient norm / parameter norm", log_axis(positive["gradient_parameter_ratio"])
    order = list(dict.fromkeys(positive["group"]))
    chart = alt.Chart(positive, title=_title("Gradient to parameter ratio per group"))
    tooltip = ["group:N", "step:Q", alt.Tooltip("gradient_parameter_ratio:Q", format=".3g")]
    if len(order) <= MAX_GROUP_LINES:
        return chart.mark_line().encode(
            x=STEP,
            y=alt.Y("gradient_parameter_ratio:Q", title=f"{title} (log scale)", scale=LOG, axis=axis),
            color=alt.Color("group:N", title="parameter group", sort=order),
            tooltip=tooltip,
        )
    colour = alt.Color(
        "gradient_parameter_ratio:Q", title=title, scale=alt.Scale(type="log", scheme="cividis"),
        legend=swatches(),
    )  # fmt: skip
    x = alt.X("step:O", title="step", axis=alt.Axis(labelOverlap=True, labelAngle=0))
    y = alt.Y("group:N", title="parameter group", sort=order)
    return chart.mark_rect().encode(x=x, y=y, color=colour, tooltip=tooltip).properties(height=alt.Step(14))


def step_time_chart(timed: pd.DataFrame, outliers: pd.DataFrame) -> AnyChart:
    """Wall time of the job's steps (step, wall_us), log scale; stalled steps coloured by what took the time."""
    if not timed["wall_us"].notna().any():
        return empty_chart("Step time")
    shown_ms = timed["wall_us"] / 1e3
    y = alt.Y("wall_ms:Q", title="step time (ms, log scale)", scale=LOG, axis=log_axis(shown_ms))
    base = alt.Chart(timed[["step"]].assign(wall_ms=shown_ms))
    line = base.mark_line(strokeWidth=1, color=GREY).encode(x=STEP, y=y)
    if outliers.empty:
        return line.properties(title=_title("Step time", "callbacks included; no stalled step"))
    lost_s = outliers["excess_us"].sum() / 1e6
    title = _title("Step time", f"callbacks included; stalled steps: {len(outliers)}, {lost_s:,.2f} s lost")
    return alt.layer(line, _stalls(outliers, y)).properties(title=title)


def _stalls(outliers: pd.DataFrame, y: alt.Y) -> alt.Chart:
    shown = [c for c in CAUSE_COLOURS if c in set(outliers["cause"])]
    scale = alt.Scale(domain=shown, range=[CAUSE_COLOURS[c] for c in shown])
    points = alt.Chart(outliers.assign(wall_ms=outliers["wall_us"] / 1e3, lost_ms=outliers["excess_us"] / 1e3))
    return points.mark_circle(size=60, opacity=1).encode(
        x=STEP,
        y=y,
        color=alt.Color("cause:N", title="stalled by", scale=scale),
        tooltip=["step:Q", "rank_id:N", "cause:N", *(alt.Tooltip(f"{c}:Q", format=",.1f") for c in TOOLTIP_MS)],
    )


def step_time_histogram(histogram: pd.DataFrame) -> AnyChart:
    """Distribution of the steady steps' time (low_us, high_us, steps)."""
    if histogram.empty:
        return empty_chart("Distribution of the step time", "no steady step")
    frame = histogram.assign(low_ms=histogram["low_us"] / 1e3, high_ms=histogram["high_us"] / 1e3)
    return (
        alt.Chart(frame, title=_title("Distribution of the step time"))
        .mark_bar(color=BLUE, binSpacing=0)
        .encode(
            x=alt.X("low_ms:Q", title="step time (ms)", bin="binned", scale=alt.Scale(zero=False)),
            x2="high_ms:Q",
            y=alt.Y("steps:Q", title="steps"),
            tooltip=[alt.Tooltip("low_ms:Q", format=",.1f"), alt.Tooltip("high_ms:Q", format=",.1f"), "steps:Q"],
        )
    )


def time_shares_chart(shares: pd.DataFrame) -> AnyChart:
    """Where the wall time went, a bar per rank (rank_id, part, share); parts too small to see are left out."""
    parts = [p for p in PART_COLOURS if p in set(shares.loc[shares["share"] >= SHARE_SHOWN, "part"])]
    if not parts:
        return empty_chart("Where the time went")
    order = {p: i for i, p in enumerate(parts)}
    shown = shares[shares["part"].isin(parts)]
    return (
        alt.Chart(shown.assign(order=shown["part"].map(order)), title=_title("Where the time went"))
        .mark_bar()
        .encode(
            x=alt.X(
                "share:Q",
                title="share of wall time",
                axis=alt.Axis(format=".0%", tickCount=10),
                scale=alt.Scale(domain=[0, 1]),
            ),
            y=alt.Y("rank_id:O", title="rank"),
            color=alt.Color(
                "part:N",
                title=None,
                legend=alt.Legend(orient="top"),
                scale=alt.Scale(domain=parts, range=[PART_COLOURS[p] for p in parts]),
            ),
            order="order:Q",
            tooltip=["rank_id:O", "part:N", alt.Tooltip("share:Q", format=".2%")],
        )
        .properties(height=alt.Step(26))
    )


def tokens_chart(rates: pd.DataFrame) -> AnyChart:
    """Tokens per second of the job over steps (step, tokens_per_s)."""
    return _line(rates, "tokens_per_s", "Throughput", "tokens per second", ",.0f", axis=alt.Axis(format="~s"))


def memory_chart(job: pd.DataFrame) -> AnyChart:
    """Memory of the fullest rank over steps, in GiB."""
    columns = [c for c in MEMORY_NAMES if c in job and job[c].notna().any()]
    if not columns:
        return empty_chart("Memory")
    long = job.melt("step", columns, "kind", "value_bytes").dropna(subset=["value_bytes"])
    long = long.assign(gib=long["value_bytes"] / 2**30, kind=long["kind"].map(MEMORY_NAMES))
    return (
        alt.Chart(long[["step", "kind", "gib"]], title=_title("Memory", "of the rank that holds most"))
        .mark_line()
        .encode(
            x=STEP,
            y=alt.Y("gib:Q", title="memory (GiB)"),
            color=alt.Color("kind:N", title=None),
            tooltip=["step:Q", "kind:N", alt.Tooltip("gib:Q", format=".3f")],
        )
        .properties(height=160)
    )


def _line(
    frame: pd.DataFrame, column: str, title: str, words: str, number_format: str, *, axis: alt.Axis | None = None
) -> AnyChart:
    known = frame[["step", column]].dropna()
    if known.empty:
        return empty_chart(title)
    tooltip = ["step:Q", alt.Tooltip(f"{column}:Q", format=number_format)]
    y = alt.Y(f"{column}:Q", title=words, axis=axis or alt.Axis())
    chart = alt.Chart(known, title=_title(title))
    return chart.mark_line(color=BLUE).encode(x=STEP, y=y, tooltip=tooltip)


def _title(text: str, subtitle: str = "") -> alt.TitleParams:
    return alt.TitleParams(text, subtitle=subtitle, subtitleColor=QUIET) if subtitle else alt.TitleParams(text)
