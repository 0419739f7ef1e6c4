"""What runs inside or beside a MindSpore training; the only home of MindSpore. Names load on first use."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from workbench.errors import missing_mindspore

if TYPE_CHECKING:
    from workbench.probes.batch_watch import BatchWatch
    from workbench.probes.data_profile import profile_pipeline, profile_pipelines
    from workbench.probes.evaluation import EvaluationTask
    from workbench.probes.inline_evaluation import InlineEval
    from workbench.probes.layer_probe import LayerProbe
    from workbench.probes.live_alerts import Alerts
    from workbench.probes.pipeline_tune import tune
    from workbench.probes.profile_capture import profile_steps
    from workbench.probes.recorder import Recorder
    from workbench.probes.sample_columns import FirstInputs, SampleColumns
    from workbench.probes.train_step import RecordedStep

__all__ = [
    "Alerts", "BatchWatch", "EvaluationTask", "FirstInputs", "InlineEval", "LayerProbe", "RecordedStep", "Recorder",
    "SampleColumns", "profile_pipeline", "profile_pipelines", "profile_steps", "tune",
]  # fmt: skip

_HOMES = {
    "BatchWatch": "batch_watch",
    "Alerts": "live_alerts",
    "EvaluationTask": "evaluation",
    "FirstInputs": "sample_columns",
    "InlineEval": "inline_evaluation",
    "LayerProbe": "layer_probe",
    "RecordedStep": "train_step",
    "Recorder": "recorder",
    "SampleColumns": "sample_columns",
    "profile_pipeline": "data_profile",
    "profile_pipelines": "data_profile",
    "profile_steps": "profile_capture",
    "tune": "pipeline_tune",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'workbench.probes' has no attribute {name!r}")
    if find_spec("mindspore") is None:
        raise missing_mindspore(f"workbench.probes.{name}")
    return getattr(import_module(f"workbench.probes.{_HOMES[name]}"), name)
