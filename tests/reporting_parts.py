"""Small runs, checkpoints and notebooks for the tests of reports."""

import json
from pathlib import Path

import nbformat

REPOSITORY = Path(__file__).parents[1]
CKPT = REPOSITORY / "data_samples" / "checkpoints" / "tiny-1_2.ckpt"
EVALUATOR = "stand_in_evaluator"
PARAMETERS = 'run_path = "."\ncheckpoint = ""\nfindings_path = "findings.json"'
FINDINGS_CELL = """
from workbench.findings.finding import Finding
from workbench.reporting.report import save_findings
found = [
    Finding(cause="loss_spike", playbook="T1", severity="info", confidence="low", title="A small thing.", fix="Wait.",
            source="test"),
    Finding(cause="subset_regression", playbook="T5", severity="warning", confidence="high",
            title=f"Subset code of {checkpoint} got 4 % worse.", fix="Look at the mix.", source="test"),
]
save_findings(found, findings_path)
"""


def make_run(folder: Path, names: list[str], *, run_id: str = "demo", ended: bool = False, **info: object) -> Path:
    """A run with whole checkpoints of these stems."""
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "events").mkdir()
    (folder / "run.json").write_text(json.dumps({"schema": 1, "run_id": run_id, "start_ns": 1, **info}))
    for name in names:
        (folder / "checkpoints" / f"{name}.ckpt").write_bytes(CKPT.read_bytes())
    if ended:
        end_run(folder)
    return folder


def end_run(run: Path) -> None:
    """Record the end of the training."""
    with (run / "events" / "rank_0.jsonl").open("a") as f:
        f.write('{"kind": "end", "start_ns": 2, "name": "finished"}\n')


def make_notebook(path: Path, *cells: str, markdown: str = "# Report", parameters: str = PARAMETERS) -> Path:
    """A notebook with a parameters cell and these code cells."""
    first = nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]})
    code = [nbformat.v4.new_code_cell(c) for c in cells]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(markdown), first, *code])
    notebook.metadata["kernelspec"] = {"name": "python3", "language": "python", "display_name": "Python 3"}
    nbformat.write(notebook, path)
    return path
