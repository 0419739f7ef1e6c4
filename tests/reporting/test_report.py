"""Reports from notebooks: parameters, failures, findings, and nothing left running."""

import os
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest
from reporting_parts import FINDINGS_CELL, make_notebook

from workbench.charts.theme import TARGET_VARIABLE
from workbench.errors import ReportFailedError, UnknownParameterError, UnreadableFileError
from workbench.findings.finding import Finding
from workbench.reporting.execution import CHARTS_VARIABLE
from workbench.reporting.report import read_findings, render_report, run_notebook, save_findings

CALLER = """
import sys
from pathlib import Path
from workbench.reporting.report import render_report
render_report(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def _printed(path: Path) -> str:
    cells = nbformat.read(path, as_version=4).cells
    return "".join(o.text for c in cells for o in c.get("outputs", ()) if o.output_type == "stream")


def test_parameters_reach_the_notebook_which_runs_in_its_folder(tmp_path):
    code = "import os; print(checkpoint, os.path.basename(os.getcwd()), os.environ['WORKBENCH_CHARTS'])"
    notebook = make_notebook(tmp_path / "n.ipynb", code)
    output = render_report(notebook, tmp_path / "deep" / "out.ipynb", checkpoint='m-1_2 "quoted" 试验')
    assert _printed(output) == f'm-1_2 "quoted" 试验 {tmp_path.name} static\n'
    assert CHARTS_VARIABLE == TARGET_VARIABLE


def test_an_unknown_parameter_is_an_error_that_lists_the_known_ones(tmp_path):
    notebook = make_notebook(tmp_path / "n.ipynb", "1")
    with pytest.raises(UnknownParameterError) as error:
        render_report(notebook, tmp_path / "out.ipynb", chekpoint="x")
    assert "n.ipynb has no parameter ['chekpoint']" in error.value.problem
    assert error.value.fix == "use one of ['checkpoint', 'findings_path', 'run_path']"
    assert not (tmp_path / "out.ipynb").exists()


def test_a_notebook_that_raises_keeps_its_executed_copy(tmp_path):
    notebook = make_notebook(tmp_path / "n.ipynb", "print('before')", "{}['missing']", "print('after')")
    with pytest.raises(ReportFailedError, match=r"Cell 3 of n.ipynb raised KeyError: 'missing'"):
        render_report(notebook, tmp_path / "out.ipynb")
    assert _printed(tmp_path / "out.ipynb") == "before\n"


def test_a_kernel_that_dies_is_a_failure_with_a_reason(tmp_path):
    notebook = make_notebook(tmp_path / "n.ipynb", "import os; os._exit(3)")
    rendering = run_notebook(notebook, tmp_path / "out.ipynb", {})
    assert rendering.failure is not None
    assert "died" in rendering.failure.problem.lower()


@pytest.mark.parametrize("moment", ["before the kernel", "in a cell"])
def test_nothing_outlives_a_killed_caller(tmp_path, moment):
    note = tmp_path / "kernel"
    code = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    notebook = make_notebook(tmp_path / "n.ipynb", code)
    caller = subprocess.Popen([sys.executable, "-c", CALLER, str(notebook), str(tmp_path / "out.ipynb")])
    until = time.monotonic() + 60
    pids: set[int] = set()
    while time.monotonic() < until:
        pids |= {p.pid for p in psutil.Process(caller.pid).children(recursive=True)}
        if note.exists() if moment == "in a cell" else pids:
            break
        time.sleep(0.05)
    pids |= {p.pid for p in psutil.Process(caller.pid).children(recursive=True)}
    caller.kill()
    caller.wait()
    assert pids
    time.sleep(0.2)
    until = time.monotonic() + 20
    while time.monotonic() < until and any(map(_runs, pids)):
        time.sleep(0.05)
    assert not any(map(_runs, pids))


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_findings_are_saved_and_read(tmp_path):
    finding = Finding(
        cause="loss_spike", playbook="T1", severity="warning", confidence="low", title="t", fix="f", source="s"
    )
    path = tmp_path / "findings.json"
    assert read_findings(path) == []
    save_findings([finding], str(path))
    assert [f["cause"] for f in read_findings(path)] == ["loss_spike"]
    path.write_text('{"findings": ')
    with pytest.raises(UnreadableFileError, match="damaged"):
        read_findings(path)


def test_a_notebook_saves_findings(tmp_path):
    notebook = make_notebook(tmp_path / "n.ipynb", FINDINGS_CELL)
    render_report(notebook, tmp_path / "out.ipynb", findings_path=str(tmp_path / "f.json"), checkpoint="c")
    assert [f["severity"] for f in read_findings(tmp_path / "f.json")] == ["info", "warning"]


def test_two_notebooks_at_once_do_not_disturb_each_other(tmp_path):
    notebook = make_notebook(tmp_path / "n.ipynb", "print(checkpoint)")
    code = "import sys; from pathlib import Path; from workbench.reporting.report import render_report; "
    code += "render_report(Path(sys.argv[1]), Path(sys.argv[2]), checkpoint=sys.argv[2])"
    outputs = [tmp_path / f"{i}.ipynb" for i in range(3)]
    callers = [subprocess.Popen([sys.executable, "-c", code, notebook, o], env=os.environ) for o in outputs]
    assert [c.wait(timeout=120) for c in callers] == [0, 0, 0]
    assert [_printed(o).strip() for o in outputs] == [str(o) for o in outputs]
