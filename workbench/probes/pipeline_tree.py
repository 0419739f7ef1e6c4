"""A `mindspore.dataset` pipeline as a tree: its operators by name, cut after one, fed from memory, with other settings.

The user's pipeline is never changed: every function works on a copy.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mindspore.dataset as ds
import numpy as np

from workbench.analyses.data_pipeline import operator_names
from workbench.analyses.pipeline_rates import Setting
from workbench.errors import UnknownParameterError

ENDLESS = 50_000
# classes whose operator has another name in MindSpore's profile
PROFILE_TYPES = {"Mind": "MindRecord", "NumpySlices": "Generator", "TFRecord": "TFReader", "TextFile": "TextFile"}
USED_BY_MODEL = "__model_hash__"  # Model.train refuses a pipeline that another model was trained with
ONE_THREAD = frozenset({"Shuffle", "Repeat", "Zip", "Take", "Skip", "Project", "Rename", "Concat", "SyncWait"})
PASSING_ON = frozenset({"Repeat", "Zip", "Take", "Skip", "Project", "Rename", "Concat"})  # no work of their own


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One operator of a pipeline, with the settings that it has."""

    name: str  # "Map", or "Map#2" where there are several, counted from the sources
    op_type: str
    node: Any
    inputs: tuple[str, ...]
    workers: int
    can_have_workers: bool
    runs_python: bool
    processes: bool


def operators(dataset: ds.Dataset) -> list[Operator]:
    """The operators of a pipeline, sources first, the end that training reads last.

    Raises:
        UnknownParameterError: `dataset` is no pipeline of `mindspore.dataset`.
    """
    if not is_pipeline(dataset):
        raise UnknownParameterError(
            f"A {type(dataset).__name__} is no data pipeline.", fix="give an object of mindspore.dataset"
        )
    nodes = list(_sources_first(dataset))
    types = [_type_of(node) for node in nodes]
    names = dict(zip(map(id, nodes), operator_names(types), strict=True))
    return [
        Operator(
            name=names[id(node)],
            op_type=kind,
            node=node,
            inputs=tuple(names[id(child)] for child in node.children),
            workers=_workers(node, kind),
            can_have_workers=_can_have_workers(node, kind),
            runs_python=_runs_python(node),
            processes=bool(getattr(node, "python_multiprocessing", False)) and _runs_python(node),
        )
        for node, kind in zip(nodes, types, strict=True)
    ]


def is_pipeline(value: object) -> bool:
    """Whether it is a pipeline of `mindspore.dataset`."""
    return isinstance(value, ds.Dataset)


def named(dataset: ds.Dataset, name: str) -> Operator:
    """The operator `name`.

    Raises:
        UnknownParameterError: the pipeline has no such operator.
    """
    found = {op.name: op for op in operators(dataset)}
    if name not in found:
        raise UnknownParameterError(f"The pipeline has no operator {name!r}.", fix=f"use one of {list(found)}")
    return found[name]


def with_setting(dataset: ds.Dataset, setting: Setting) -> ds.Dataset:
    """A copy of the pipeline with other workers and processes.

    `prefetch_size` belongs to all pipelines of a process: `workbench.probes.pipeline_run.prefetching` sets it.
    """
    copied = _copy(dataset)
    known = {op.name: op for op in operators(copied)}
    for name in (*setting.workers, *setting.processes):
        if name not in known:
            raise UnknownParameterError(f"The pipeline has no operator {name!r}.", fix=f"use one of {list(known)}")
    for name, workers in setting.workers.items():
        if known[name].can_have_workers:
            known[name].node.num_parallel_workers = int(workers)
    for name, on in setting.processes.items():
        known[name].node.python_multiprocessing = bool(on)
    return _with_fused_maps(copied) if setting.fuse_maps else copied


class Rows:
    """Recorded rows as a source that never ends."""

    def __init__(self, rows: Sequence[tuple[np.ndarray, ...]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, index: int) -> tuple[np.ndarray, ...]:
        return self.rows[index % len(self.rows)]


def from_memory(rows: Sequence[Mapping[str, np.ndarray]]) -> ds.Dataset:
    """A source that yields recorded rows again and again."""
    columns = list(rows[0])
    return ds.GeneratorDataset(
        Rows([tuple(row[c] for c in columns) for row in rows]), columns, shuffle=False, python_multiprocessing=False
    )


def alone(operator: Operator, rows: Sequence[Mapping[str, np.ndarray]]) -> ds.Dataset:
    """The operator alone, fed with recorded rows of its input."""
    node = copy.copy(operator.node)
    node.children, node.parent = [from_memory(rows)], []
    return node


def _sources_first(node: Any) -> Iterator[Any]:
    for child in node.children:
        yield from _sources_first(child)
    yield node


def _type_of(node: Any) -> str:
    for kind in type(node).__mro__:
        name = kind.__name__.removesuffix("Dataset")
        if name in PROFILE_TYPES:
            return PROFILE_TYPES[name]
    return type(node).__name__.removesuffix("Dataset")


def _workers(node: Any, kind: str) -> int:
    if kind in ONE_THREAD:
        return 1
    return int(node.num_parallel_workers or ds.config.get_num_parallel_workers())


def _can_have_workers(node: Any, kind: str) -> bool:
    if kind in ONE_THREAD:
        return False
    if isinstance(node, ds.GeneratorDataset):
        return hasattr(node.source, "__getitem__") and hasattr(node.source, "__len__")
    return kind != "Batch" or getattr(node, "per_batch_map", None) is not None or node.num_parallel_workers is not None


def _runs_python(node: Any) -> bool:
    if isinstance(node, ds.GeneratorDataset):
        return True
    if getattr(node, "per_batch_map", None) is not None:
        return True
    return any(_is_python(operation) for operation in getattr(node, "operations", None) or ())


def _is_python(operation: Any) -> bool:
    """A function of the user, or a transform of MindSpore that says it is implemented in Python."""
    if inspect.isroutine(operation):
        return True
    return not type(operation).__module__.startswith("mindspore.dataset") or "PY" in str(
        getattr(operation, "implementation", "")
    )


def _copy(dataset: ds.Dataset) -> ds.Dataset:
    parent, dataset.parent = dataset.parent, []
    copied = copy.deepcopy(dataset)
    dataset.parent = parent
    for operator in _sources_first(copied):
        operator.__dict__.pop(USED_BY_MODEL, None)
    return copied


def _with_fused_maps(node: Any) -> Any:
    """Join maps that follow each other and work on the same columns; the joined one has the workers of both."""
    node.children = [_with_fused_maps(child) for child in node.children]
    if not (isinstance(node, MAP) and isinstance(node.children[0], MAP)):
        return node
    first = node.children[0]
    if first.output_columns not in (None, [], first.input_columns) or first.input_columns != node.input_columns:
        return node
    node.operations = [*first.operations, *node.operations]
    node.num_parallel_workers = max(_workers(first, "Map"), _workers(node, "Map"))
    node.python_multiprocessing = bool(first.python_multiprocessing or node.python_multiprocessing)
    node.children = first.children
    return node


MAP = ds.engine.datasets.MapDataset
