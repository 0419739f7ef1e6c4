"""The architecture: imports point down, heavy libraries have one home, the package loads fast."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import workbench
from workbench.readers import ALL_KINDS, MODULES
from workbench.tables import TABLES

PACKAGE = Path(workbench.__file__).parent
REPOSITORY = PACKAGE.parent
MODULE_FILES = sorted(PACKAGE.rglob("*.py"))
HOMES = {  # library -> folders and modules (below workbench/) that may import it
    "mindspore": ("probes/",),
    "altair": ("charts/", "widgets/"),
    "ipywidgets": ("widgets/",),
    "papermill": ("reporting/report.py", "reporting/execution.py"),
    "duckdb": ("store.py",),
    "joblib": ("ingest.py",),
}
HEAVY = {
    "mindspore",
    "altair",
    "ipywidgets",
    "papermill",
    "pandas",
    "numpy",
    "pyarrow",
    "duckdb",
    "scipy",
    "jupyterlab",
}
LONGEST_FUNCTION = 40  # lines without the docstring


def imported(tree: ast.AST) -> set[str]:
    """Top-level packages of all imports, those inside functions included."""
    plain = {a.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    return plain | {
        n.module.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module and not n.level
    }


def test_imports_point_down_only():
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("library", HOMES)
def test_a_heavy_library_has_one_home(library):
    users = [str(p.relative_to(PACKAGE)) for p in MODULE_FILES if library in imported(ast.parse(p.read_text()))]
    assert users, f"nothing imports {library}: take it out of the dependencies"
    assert [u for u in users if not u.startswith(HOMES[library])] == []


@pytest.mark.parametrize(
    "statement", ["import workbench", "import workbench.cli", "from workbench.cli import build_parser"]
)
def test_importing_loads_nothing_heavy(statement):
    code = f"import json, sys; {statement}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY.isdisjoint(json.loads(done.stdout))


def test_help_loads_nothing_heavy():
    code = """
import json, sys
from workbench.cli import main
try:
    main(["--help"])
except SystemExit:
    print("\\n" + json.dumps(sorted(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY.isdisjoint(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("path", MODULE_FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_modules_say_what_they_are_and_functions_are_short(path):
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), "a module begins with a line that says what comes in and out"
    long = [
        f"{node.name}: {lines} lines"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and (lines := lines_of_code(node)) > LONGEST_FUNCTION
    ]
    assert long == []


def lines_of_code(node: ast.FunctionDef) -> int:
    """Lines of a function without its docstring."""
    first = node.body[0]
    has_docstring = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    docstring = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
    return (node.end_lineno or 0) - node.lineno + 1 - docstring


def test_public_names_exist():
    for name in workbench.__all__:
        assert getattr(workbench, name) is not None
    assert dir(workbench) == sorted(workbench.__all__)
    with pytest.raises(AttributeError):
        _ = workbench.nothing


def test_every_reader_module_is_joined():
    files = (PACKAGE / "readers").glob("*.py")
    with_kinds = {p.stem for p in files if re.search(r"^KINDS\b", p.read_text(), re.MULTILINE)}
    assert with_kinds == {module.__name__.rsplit(".", 1)[-1] for module in MODULES}


def test_every_table_is_filled_by_some_kind_of_file():
    looked_at = {"checkpoint_files"}  # what lies there now, no content of a file
    assert set(TABLES) - looked_at == {name for kind in ALL_KINDS for name in kind.tables}


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda t: t.name)
def test_tables_are_declared_well(table):
    names = table.column_names
    assert len(set(names)) == len(names)
    assert all(c.dtype in {"float64", "int64", "Int64", "string", "boolean"} for c in table.columns)
    assert all(c.required for c in table.columns if c.dtype == "int64"), "int64 has no missing value"
    assert table.fix
    assert table.meaning.endswith(".")
