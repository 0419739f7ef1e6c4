"""Rule on the samples behind jumps of the loss."""

from __future__ import annotations

import pandas as pd

from workbench.analyses.anomalous_samples import suspect_samples
from workbench.findings.finding import Culprit, Evidence, Finding, Steps
from workbench.findings.rule import Rule

SHOWN = 5
PREVIEW_CHARACTERS = 120


def find_bad_batch(suspect_batches: pd.DataFrame) -> list[Finding]:
    """One finding on samples that stand out in the batches at which the loss jumped; see `suspect_samples`."""
    found = suspect_samples(suspect_batches)
    if found.empty:
        return []
    names = found["sample_id"].fillna("hash " + found["fingerprint"])
    samples = list(dict.fromkeys(names))
    steps = sorted({int(s) for s in found["spike_step"]})
    alone = found["loss"].notna().any()
    again = int(found["jumps"].max())
    why = f"{found['sigmas'].max():.0f} robust deviations above the samples around it" if alone else (
        f"in the batches of {again} jumps"
    )  # fmt: skip
    return [
        Finding(
            cause="bad_batch",
            playbook="T1",
            severity="warning",
            confidence="high" if alone or again > 2 else "medium",
            title=f"{len(samples)} sample(s) stand out in the batches at which the loss jumped (step "
            f"{', '.join(map(str, steps[:SHOWN]))}): {samples[0]} lies {why}.",
            fix="Look at these samples; take damaged ones out of the data, and skip the batch when resuming.",
            source="robust deviation among the rows around the jump (workbench.analyses.anomalous_samples)",
            culprit=Culprit(rank=int(found["rank_id"].iloc[0])),
            steps=Steps(first=steps[0], last=steps[-1], list=tuple(steps)),
            evidence=tuple(
                Evidence(fact=f"sample {name}, row {row.row} of step {row.step}", value=_shown(row.preview),
                         table="suspect_batches", where=f"loss {row.loss:.3g} nats per token")
                for name, row in zip(names[:SHOWN], found.head(SHOWN).itertuples(), strict=True)
            ),
        )
    ]  # fmt: skip


def _shown(preview: object) -> str:
    return "" if pd.isna(preview) else str(preview)[:PREVIEW_CHARACTERS]


RULES: tuple[Rule, ...] = (
    Rule(causes=("bad_batch",), needs=("suspect_batches",), find=lambda t: find_bad_batch(t["suspect_batches"])),
)
