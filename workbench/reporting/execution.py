"""The program that runs one notebook: `python -m workbench.reporting.execution JOB`, JOB being a JSON object.

Started by `workbench.reporting.report`; it holds papermill and the kernel, and takes both with it
when it ends or is killed.
"""

# ruff: noqa: E402 - one package is left out before what would import it
from __future__ import annotations

import functools
import os
import sys
import uuid
from pathlib import Path
from typing import Any

# nbformat imports jsonschema, which takes this package if it is there: 1.4 s of processor time for the grammar of a
# text format that no notebook has.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

import msgspec
import papermill
from jupyter_client.manager import AsyncKernelManager

from workbench.errors import UnknownParameterError, WorkbenchError
from workbench.processes import die_with_parent
from workbench.reporting.export import export_html
from workbench.reporting.report import EXIT_NOTEBOOK_RAISED, EXIT_UNKNOWN_PARAMETER, Failure

CHARTS_VARIABLE = "WORKBENCH_CHARTS"  # read by workbench.charts.theme, which would cost a second to import here
NICENESS = 10  # a report must not slow the training beside it down
EXIT_FAILED = 1


class Job(msgspec.Struct):
    """What to run: the fields that `workbench.reporting.report.run_notebook` fills."""

    notebook: str
    output: str
    page: str | None
    title: str | None
    index_href: str | None
    parameters: dict[str, Any]


class BoundKernelManager(AsyncKernelManager):
    """A kernel that ends with this process and, on Linux, talks over nameless local sockets.

    Ports are chosen before they are bound, so two kernels that start at once may get the same one.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if sys.platform.startswith("linux"):
            self.transport = "ipc"
            self.ip = f"@workbench-{uuid.uuid4().hex}"

    async def _async_launch_kernel(self, kernel_cmd: list[str], **options: Any) -> None:
        bound = functools.partial(die_with_parent, os.getpid())
        await super()._async_launch_kernel(kernel_cmd, **options, preexec_fn=bound)

    _launch_kernel = _async_launch_kernel


def execute(job: Job) -> None:
    """Run the notebook in its folder and write its executed copy.

    Raises:
        UnknownParameterError: a parameter that the notebook does not declare (papermill would only warn).
        papermill.PapermillExecutionError: a cell raised; the executed copy is written.
    """
    declared = papermill.inspect_notebook(job.notebook)
    if unknown := sorted(job.parameters.keys() - declared.keys()):
        name = Path(job.notebook).name
        raise UnknownParameterError(f"{name} has no parameter {unknown}.", fix=f"use one of {sorted(declared)}")
    Path(job.output).parent.mkdir(parents=True, exist_ok=True)
    papermill.execute_notebook(
        job.notebook,
        job.output,
        job.parameters,
        kernel_name="python3",
        language="python",
        kernel_manager_class=BoundKernelManager,
        cwd=str(Path(job.notebook).parent),
        progress_bar=False,
        log_output=False,
    )


def main(text: str) -> int:
    """Run a job; the last line on stderr is a `Failure` unless all went well."""
    job = msgspec.json.decode(text, type=Job)
    os.nice(NICENESS)
    os.environ[CHARTS_VARIABLE] = "static"
    failure, status = None, 0
    try:
        execute(job)
    except papermill.PapermillExecutionError as error:
        failure, status = _cell_failure(error, job), EXIT_NOTEBOOK_RAISED
    except UnknownParameterError as error:
        return _tell(Failure(error.problem, error.fix), EXIT_UNKNOWN_PARAMETER)
    try:
        if job.page is not None:
            export_html(Path(job.output), Path(job.page), title=job.title, index_href=job.index_href)
    except WorkbenchError as error:
        failure, status = Failure(error.problem, error.fix), EXIT_FAILED
    return status if failure is None else _tell(failure, status)


def _cell_failure(error: papermill.PapermillExecutionError, job: Job) -> Failure:
    return Failure(
        problem=f"Cell {error.exec_count} of {Path(job.notebook).name} raised {error.ename}: {error.evalue}",
        fix="open the executed copy of the notebook, which shows where, then report again with --retry",
    )


def _tell(failure: Failure, status: int) -> int:
    print(msgspec.json.encode(failure).decode(), file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
