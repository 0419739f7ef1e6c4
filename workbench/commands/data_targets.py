"""What `workbench data` is asked to work on: a function that builds a pipeline, or several."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from workbench.errors import UnknownParameterError, missing_mindspore

FIX = "name a function that returns a mindspore.dataset pipeline (or a dictionary of them), as package.module:function"


def built_pipelines(target: str, arguments: str | None = None) -> dict[str, Any]:
    """The pipelines that `package.module:function` builds, by name.

    Args:
        target: module and function; modules in the current directory are found.
        arguments: JSON object of its keyword arguments.

    Raises:
        UnknownParameterError: there is no such function, or it builds no pipeline.
        MissingExtraError: MindSpore is not installed.
    """
    if find_spec("mindspore") is None:
        raise missing_mindspore("Building a data pipeline")
    from workbench.probes.evaluate import import_from_here
    from workbench.probes.pipeline_tree import is_pipeline

    import_from_here()
    module, _, name = target.partition(":")
    try:
        build = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnknownParameterError(f"{target} cannot be imported: {error}.", fix=FIX) from error
    built = build(**_keywords(arguments))
    found = dict(built) if isinstance(built, Mapping) else {"train": built}
    if not found or not all(is_pipeline(d) for d in found.values()):
        raise UnknownParameterError(f"{target} returned a {type(built).__name__}, no pipeline.", fix=FIX)
    return found


def _keywords(arguments: str | None) -> dict[str, Any]:
    try:
        keywords = json.loads(arguments or "{}")
    except ValueError as error:
        raise UnknownParameterError(f"--arguments is no JSON: {error}.", fix="write it as '{\"name\": 1}'") from error
    if not isinstance(keywords, dict):
        raise UnknownParameterError("--arguments is no JSON object.", fix="write it as '{\"name\": 1}'")
    return keywords
