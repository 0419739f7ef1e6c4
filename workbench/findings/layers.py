"""Rules on layer statistics: layers that depart from their kind, die, overflow, or change with the token position."""

from __future__ import annotations

import pandas as pd

from workbench.analyses.layer_statistics import (
    COMMON_LOG2,
    DRIFT_LOG2,
    FEWEST_RECORDS,
    layer_drift,
    position_drift,
    whole_rows,
)
from workbench.findings.finding import Evidence, Finding, Severity, Steps
from workbench.findings.rule import Rule

POSITION_LOG2 = 1.0  # spread at late positions twice or half that of earlier ones
POSITION_SIGMAS = 8.0
LISTED = 8
SUB_CAUSES = {
    "departs": "layer_departs",
    "all layers": "all_layers",
    "dead": "dead_layer",
    "not finite": "not_finite",
}
FIXES = {
    "departs": "Compare the checkpoints before and after that step for this layer's weights, look at its "
    "gradient/parameter ratio, and go back to the one before if nothing was meant to change there.",
    "all layers": "Look at the learning rate and the gradient norm at that step; normalisation or weight decay may be "
    "missing.",
    "dead": "Lower the learning rate or change the initialisation of this layer; outputs of zero pass no gradient.",
    "not finite": "Go back to a checkpoint before that step, and keep this layer in float32.",
}


def find_layer_drift(layer_statistics: pd.DataFrame) -> list[Finding]:
    """One finding per kind of departure, led by the layer that is furthest away; see `analyses.layer_drift`."""
    drift = layer_drift(layer_statistics)
    records = int(whole_rows(layer_statistics)["step"].nunique())
    return [_finding(str(what), part, records) for what, part in drift.groupby("what", sort=False)]


def find_position_drift(layer_statistics: pd.DataFrame) -> list[Finding]:
    """One finding if layers' activations at late token positions differ from those at earlier ones."""
    found = position_drift(layer_statistics)
    odd = found[(found["change_log2"].abs() >= POSITION_LOG2) & (found["sigmas"] >= POSITION_SIGMAS)]
    if odd.empty:
        return []
    worst = odd.iloc[0]
    return [
        Finding(
            cause="layer_drift",
            sub_cause="late_positions",
            playbook="T5",
            severity="warning",
            confidence="medium",
            title=f"From token {worst['first_position']} on, the spread of {worst['layer']} is "
            f"{2 ** worst['change_log2']:.2g} times that of earlier tokens ({len(odd)} such layers).",
            fix="Compare the loss by token position; check position embeddings, attention masks and whether the "
            "training data holds texts of this length.",
            source="ratio of spreads over position ranges; thresholds ours (workbench.findings.layers)",
            evidence=(
                Evidence(fact="layer", value=str(worst["layer"]), table="layer_statistics"),
                Evidence(fact="spread, late positions over earlier ones", value=float(2 ** worst["change_log2"])),
                Evidence(fact="layers that show it", value=len(odd), unit="layers"),
            ),
        )
    ]


def _finding(what: str, part: pd.DataFrame, records: int) -> Finding:
    worst = part.iloc[0]
    critical = what == "not finite"
    severity: Severity = "critical" if critical else "warning"
    onset = int(part["onset_step"].min())
    where = "All layers" if what == "all layers" else f"Layer {worst['layer']}"
    layers = list(dict.fromkeys(part["layer"].dropna()))
    return Finding(
        cause="layer_drift",
        sub_cause=SUB_CAUSES[what],
        playbook="T5",
        severity=severity,
        confidence="high" if what in ("not finite", "dead") or worst["sigmas"] >= 2 * 8 else "medium",
        title=_title(what, where, worst, onset, len(layers)),
        fix=FIXES[what],
        source="departure from the layers of the same kind; thresholds ours (workbench.analyses.layer_statistics)",
        steps=Steps(first=onset),
        evidence=(
            Evidence(fact="layers", value=", ".join(layers[:LISTED]) or "all", table="layer_statistics"),
            Evidence(fact=f"{worst['measure']} before", value=float(worst["reference"]), table="layer_statistics"),
            Evidence(fact=f"{worst['measure']} now", value=float(worst["now"]), table="layer_statistics"),
            Evidence(fact="factor away from its kind", value=float(2 ** abs(worst["departure_log2"]))),
            Evidence(fact="records", value=records, unit=f"records (at least {FEWEST_RECORDS} are needed)"),
        ),
    )


def _title(what: str, where: str, worst: pd.Series, onset: int, layers: int) -> str:
    if what == "dead":
        return f"{where} gives zero for {worst['now']:.1%} of its outputs since step {onset} ({layers} such layers)."
    if what == "not finite":
        return f"{where} gave outputs that are not finite at step {onset} ({layers} such layers)."
    factor = 2 ** abs(worst["departure_log2"])
    word = "grew" if worst["departure_log2"] > 0 else "shrank"
    measure = {"spread": "the spread of its outputs", "max_abs": "its largest output"}[str(worst["measure"])]
    limit = 2**COMMON_LOG2 if what == "all layers" else 2**DRIFT_LOG2
    beyond = "" if what == "all layers" else " beyond the layers of its kind"
    return f"{where}: {measure} {word} {factor:.3g} times{beyond} since step {onset} (limit {limit:.0f})."


RULES: tuple[Rule, ...] = (
    Rule(causes=("layer_drift",), needs=("layer_statistics",), find=lambda t: find_layer_drift(t["layer_statistics"])),
    Rule(
        causes=("layer_drift",), needs=("layer_statistics",), find=lambda t: find_position_drift(t["layer_statistics"])
    ),
)
