"""The error tree. Every error says what is wrong, what was there, and what to do.

WorkbenchError
├── UnreadableFileError        a file that cannot be read at all
├── UnknownContentError        a path in which nothing known was found
├── MissingColumnsError        a table or file without a column that it must have
├── MissingTableError          a run without the table that was asked for
├── CacheWriteError            derived tables that cannot be written
├── OutputWriteError           results that cannot be written
├── UnknownParameterError      a name that the notebook, table or command does not know
├── CheckpointError            a checkpoint that is damaged or does not fit the network
├── PipelineError              a data pipeline that raises, yields nothing or does not answer
├── MissingExtraError          a package of an optional extra is not installed
├── TrainingFailedError        a training that was started ended with an error
└── ReportFailedError          a report notebook raised
"""

from __future__ import annotations


class WorkbenchError(ValueError):
    """Base of all errors that a user can fix."""

    def __init__(self, problem: str, *, fix: str) -> None:
        super().__init__(f"{problem}\nFix: {fix}")
        self.problem = problem
        self.fix = fix

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.problem, self.fix))


def _rebuild(kind: type[WorkbenchError], problem: str, fix: str) -> WorkbenchError:
    """Unpickle an error that a worker process raised."""
    return kind(problem, fix=fix)


class UnreadableFileError(WorkbenchError):
    """A file that cannot be read at all."""


class UnknownContentError(WorkbenchError):
    """A path in which nothing known was found."""


class MissingColumnsError(WorkbenchError):
    """A table or file without a column that it must have."""


class MissingTableError(WorkbenchError):
    """A run without the table that was asked for."""


class CacheWriteError(WorkbenchError):
    """Derived tables that cannot be written: no space, no permission."""


class OutputWriteError(WorkbenchError):
    """Results that cannot be written: no space, no permission."""


class UnknownParameterError(WorkbenchError):
    """A name that the notebook, table or command does not know."""


class CheckpointError(WorkbenchError):
    """A checkpoint that is damaged or does not fit the network."""


class PipelineError(WorkbenchError):
    """A data pipeline that raises, yields nothing or does not answer."""


class MissingExtraError(WorkbenchError):
    """A package of an optional extra is not installed."""


def missing_mindspore(what: str) -> MissingExtraError:
    """The error of `what`, which cannot work without MindSpore."""
    return MissingExtraError(
        f"{what} needs MindSpore, which is not installed.", fix="pip install 'mindspore-workbench[mindspore]'"
    )


class TrainingFailedError(WorkbenchError):
    """A training that was started ended with an error."""


class ReportFailedError(WorkbenchError):
    """A report notebook raised."""
