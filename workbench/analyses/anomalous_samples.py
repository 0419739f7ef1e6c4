"""Samples that stand out: the worst scored ones of an evaluation, and those of batches at which the loss jumped."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyses.evaluation import checkpoints_in_order
from workbench.analyses.statistics import MAD_TO_SIGMA, mad
from workbench.errors import UnknownParameterError
from workbench.tables import EVAL_SAMPLES, SUSPECT_BATCHES

SUSPECT_SIGMAS = 6.0


def highest_loss_samples(eval_samples: pd.DataFrame, *, checkpoint: str | None = None, count: int = 20) -> pd.DataFrame:
    """Samples with the highest loss per token of one checkpoint.

    Args:
        eval_samples: table `eval_samples`.
        checkpoint: the last one by default; where nothing names a checkpoint, the last step.
        count: samples at most.

    Returns:
        checkpoint, step, subset, sample_id, document_id, scored_tokens, loss (nats per token), sigmas (robust
        deviations above the median of the subset), preview. Highest loss first; samples without a finite loss lead.

    Raises:
        UnknownParameterError: there is no such checkpoint.
    """
    samples = EVAL_SAMPLES.check(eval_samples)
    order = checkpoints_in_order(samples)
    if checkpoint is not None and checkpoint not in order:
        raise UnknownParameterError(f"There is no checkpoint {checkpoint!r}.", fix=f"use one of {order}")
    chosen = checkpoint or (order[-1] if order else None)
    own = samples[samples["checkpoint"] == chosen] if chosen else samples[samples["step"] == samples["step"].max()]
    loss = own["loss_nats"] / own["scored_tokens"].where(own["scored_tokens"] > 0)
    scored = own.assign(loss=loss)[(own["scored_tokens"] > 0).to_numpy()]
    sigmas = scored.groupby("subset")["loss"].transform(_sigmas)
    columns = ["checkpoint", "step", "subset", "sample_id", "document_id", "scored_tokens", "loss", "sigmas", "preview"]
    ordered = scored.assign(sigmas=sigmas, odd=~np.isfinite(scored["loss"]))
    return (
        ordered.sort_values(["odd", "loss"], ascending=False, kind="stable").head(count)[columns].reset_index(drop=True)
    )


def suspect_samples(suspect_batches: pd.DataFrame) -> pd.DataFrame:
    """Samples of the batches at jumps of the loss that stand out from the others recorded around the jump.

    Where rows were scored alone: those `SUSPECT_SIGMAS` robust deviations above the median of all rows of the jump's
    batches, or without a finite loss. Where they were not: samples that were in the batches of several jumps.

    Returns:
        One row per jump and sample: rank_id, spike_step, step, row, sample_id, fingerprint, batch_loss, loss, sigmas,
        jumps (in whose last batch the sample was), preview. Largest first.
    """
    rows = SUSPECT_BATCHES.check(suspect_batches)
    at_jump = rows["step"] == rows["spike_step"]
    jumps = rows[at_jump].groupby(["rank_id", "fingerprint"])["spike_step"].nunique().rename("jumps")
    sigmas = rows.groupby(["rank_id", "spike_step"])["loss"].transform(_sigmas)
    judged = rows.assign(sigmas=sigmas).join(jumps, on=["rank_id", "fingerprint"])
    broken = judged["loss"].notna() & ~np.isfinite(judged["loss"])
    found = judged[at_jump & ((judged["sigmas"] >= SUSPECT_SIGMAS) | broken | (judged["jumps"] > 1))]
    columns = ["rank_id", "spike_step", "step", "row", "sample_id", "fingerprint", "batch_loss", "loss", "sigmas",
               "jumps", "preview"]  # fmt: skip
    return found.sort_values(["sigmas", "jumps"], ascending=False, kind="stable")[columns].reset_index(drop=True)


def _sigmas(losses: pd.Series) -> pd.Series:
    finite = losses[np.isfinite(losses)]
    spread = MAD_TO_SIGMA * mad(finite)
    return (losses - finite.median()) / (spread if spread > 0 else np.nan)
