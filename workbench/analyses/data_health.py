"""Table `data_samples` -> what is wrong with a data set, per subset: empty, repeated, cut, unknown, unusable, slow."""

from __future__ import annotations

import pandas as pd

from workbench.analyses.duplicates import repeated_samples
from workbench.analyses.lengths import ALL, truncation, usable_samples


def subset_health(samples: pd.DataFrame) -> pd.DataFrame:
    """Shares of what makes samples useless or harmful, per subset and over all.

    Args:
        samples: table `data_samples`.

    Returns:
        Per subset and for `(all)`, all shares in [0, 1]: samples, unusable_share (with a problem), empty_share (of
        the others), exact_share and near_share (samples that repeat an earlier one, near including exact; of those that
        are not empty), repeated_bytes_share (of the text), tokens, token_share (of all tokens), unknown_share and
        byte_share (of the tokens; NaN without a tokenizer), long_share and lost_share (see `truncation`; NaN without a
        training length), bytes_per_token.
    """
    rows = samples.assign(**repeated_samples(samples), usable=samples.index.isin(usable_samples(samples).index))
    rows["subset"] = rows["subset"].fillna("(none)")
    cut = truncation(samples).set_index("subset")
    parts = [(ALL, rows), *rows.groupby("subset")] if len(rows) else []
    table = pd.DataFrame([_health(str(name), part) for name, part in parts])
    if table.empty:
        return table
    whole = table.loc[0, "tokens"]
    table["token_share"] = table["tokens"] / whole if whole else float("nan")
    for column in ("long_share", "lost_share"):
        table[column] = table["subset"].map(cut[column])
    return table


def _health(name: str, part: pd.DataFrame) -> dict[str, object]:
    sound = part[part["problem"].isna()]
    used = part[part["usable"]]
    counted = used.dropna(subset=["tokens"])
    tokens, text_bytes = counted["tokens"].sum(), used["size_bytes"].sum()
    return {
        "subset": name,
        "samples": len(part),
        "unusable_share": _share(len(part) - len(sound), len(part)),
        "empty_share": _share(len(sound) - len(used), len(sound)),
        "exact_share": _share(used["exact"].sum(), len(used)),
        "near_share": _share(used["near"].sum(), len(used)),
        "repeated_bytes_share": _share(used.loc[used["near"], "size_bytes"].sum(), text_bytes),
        "tokens": tokens if len(counted) else float("nan"),
        "unknown_share": _share(counted["unknown_tokens"].sum(min_count=1), tokens),
        "byte_share": _share(counted["byte_tokens"].sum(min_count=1), tokens),
        "bytes_per_token": _share(counted["size_bytes"].sum(), tokens),
    }


def drop_counts(samples: pd.DataFrame) -> pd.DataFrame:
    """Samples that training never sees, by reason.

    Returns:
        reason (the problem without its particulars, or "empty"), samples, share (of all), first_file, first_place.
    """
    reasons = samples["problem"].astype("string").str.extract(r"^([^:;,(]*)", expand=False).str.strip()
    reasons = reasons.mask(reasons.isna() & samples["is_empty"].fillna(False).astype(bool), "empty")
    dropped = samples.assign(reason=reasons).dropna(subset=["reason"])
    counts = dropped.groupby("reason").agg(
        samples=("sample", "size"), first_file=("file", "first"), first_place=("place", "first")
    )
    table = counts.reset_index().assign(share=lambda t: t["samples"] / max(len(samples), 1))
    return table.sort_values("samples", ascending=False, ignore_index=True)[
        ["reason", "samples", "share", "first_file", "first_place"]
    ]


def process_times(samples: pd.DataFrame) -> pd.DataFrame:
    """Time to process a sample, per subset and over all.

    Returns:
        subset, samples, p50_us, p99_us, max_us, us_per_kilobyte (of the sums), slowest_sample. Empty without times.
    """
    timed = samples.dropna(subset=["process_us"])
    rows = []
    for name, part in [(ALL, timed), *timed.groupby("subset")] if len(timed) else []:
        times = part["process_us"]
        kilobytes = part["size_bytes"].sum() / 1000
        row = {"subset": name, "samples": len(part), "p50_us": times.median(), "p99_us": times.quantile(0.99)}
        row |= {"max_us": times.max(), "us_per_kilobyte": times.sum() / kilobytes if kilobytes else float("nan")}
        rows.append(row | {"slowest_sample": part.loc[times.idxmax(), "sample"]})
    return pd.DataFrame(rows)


def batch_sizes(training_steps: pd.DataFrame) -> pd.DataFrame:
    """How often each batch size occurred.

    Args:
        training_steps: table `training_steps` with `samples` (of one rank's batch).

    Returns:
        rank_id, samples, steps, share (of the rank's steps), first_step. Steps without a number of samples are
        left out.
    """
    known = training_steps.dropna(subset=["samples"])
    counts = known.groupby(["rank_id", "samples"]).agg(steps=("step", "size"), first_step=("step", "min")).reset_index()
    totals = counts.groupby("rank_id")["steps"].transform("sum")
    return counts.assign(share=counts["steps"] / totals)[["rank_id", "samples", "steps", "share", "first_step"]]


def _share(part: float, whole: float) -> float:
    return float(part) / float(whole) if whole and pd.notna(part) else float("nan")
