"""Which columns of a batch tell its samples: what `Recorder(samples=...)` records, one line per step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mindspore import Tensor, nn

from workbench.errors import UnknownParameterError


@dataclass(frozen=True, kw_only=True)
class SampleColumns:
    """Where a batch tells its samples.

    Args:
        sample: column with the number of each sample in the data set.
        subset: column with the subset of each, as a text or as an index of `subset_names`.
        subset_names: names of the subsets, where the column holds indices.
        weights: intended share of each subset, of any sum.
    """

    sample: int
    subset: int | None = None
    subset_names: Sequence[str] | None = None
    weights: Mapping[str, float] | None = None

    def record(self, step: int, epoch: int | None, batch: Sequence[Any]) -> dict[str, object]:
        """The line of one step.

        Raises:
            UnknownParameterError: the batch has no such column, or the column does not hold one whole number a sample.
        """
        samples = self._column(self.sample, batch)
        if samples.dtype.kind not in "iu":
            raise UnknownParameterError(
                f"Column {self.sample} of the batch holds {samples.dtype}, not numbers of samples.",
                fix="name the column with SampleColumns(sample=...), and fill it with places in the data set",
            )
        line: dict[str, object] = {"step": step, "epoch": epoch, "samples": samples.tolist()}
        return line if self.subset is None else line | {"subsets": self._subsets(batch)}

    def _subsets(self, batch: Sequence[Any]) -> list[str]:
        values = self._column(self.subset or 0, batch).tolist()
        names = self.subset_names
        if names is None:
            return [str(value) for value in values]
        if any(not isinstance(v, int) or not 0 <= v < len(names) for v in values):
            raise UnknownParameterError(
                f"Column {self.subset} of the batch holds more than the {len(names)} subsets that are named.",
                fix="give SampleColumns(subset_names=...) one name for each index",
            )
        return [names[value] for value in values]

    def _column(self, index: int, batch: Sequence[Any]) -> np.ndarray:
        if not -len(batch) <= index < len(batch):
            raise UnknownParameterError(
                f"The batch has {len(batch)} columns and no column {index}.",
                fix="let the data set deliver the number of each sample as a further column",
            )
        column = batch[index]
        return np.ravel(column.asnumpy() if isinstance(column, Tensor) else np.asarray(column))


class FirstInputs(nn.Cell):
    """Hand the first `count` columns of a batch to `network`: the further ones tell the samples."""

    def __init__(self, network: nn.Cell, count: int) -> None:
        super().__init__(auto_prefix=False)
        self.network, self.count = network, count

    def construct(self, *columns: Tensor) -> Tensor:
        """Output of the network."""
        return self.network(*columns[: self.count])
