"""The notebooks run from top to bottom in an empty folder, as a reader runs them, and give what their pages need.

Keys and ids are fixed (`docs/notebook_pages.py`), so that the test, and the site, give the same each time.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re

import nbformat
import pytest

from tests.docs.pages import TOP

_SPEC = importlib.util.spec_from_file_location("notebook_pages", TOP / "docs" / "notebook_pages.py")
assert _SPEC is not None and _SPEC.loader is not None
notebook_pages = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(notebook_pages)

NOTEBOOKS = notebook_pages.notebooks()
PUBLIC = ("headcount", "headcount.mechanisms", "headcount.transforms")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(#[^)\s]*)?\)")
PIN = re.compile(r"^([\w.-]+)(?:\[.*\])?==(\S+)$", re.MULTILINE)
of_each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code(path) -> str:
    """The lines of Python of a notebook; those of the shell are comments."""
    cells = nbformat.read(path, 4).cells
    return re.sub(
        r"^[!%]", "# ", "\n".join(cell.source for cell in cells if cell.cell_type == "code"), flags=re.MULTILINE
    )


@of_each
def test_a_notebook_runs_and_shows_pictures(path, tmp_path):
    ran = notebook_pages.executed(nbformat.read(path, 4), tmp_path)
    cells = [cell for cell in ran.cells if cell.cell_type == "code"]
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output.text for output in outputs if output.get("name") == "stderr"], "a reader would wonder"
    told = "".join(output.text for output in outputs if output.output_type == "stream")
    assert "headcount: " not in told, "a line of the shell failed, which does not stop a notebook"
    shown = [output.data for output in outputs if output.output_type != "stream"]
    drawn = sum("image/png" in data or "<svg" in data.get("text/html", "") for data in shown)
    assert drawn >= 2, f"{drawn} pictures"
    assert all(
        cell.metadata.get("alt") for cell in cells for output in cell.outputs if "image/png" in output.get("data", {})
    )
    page = notebook_pages.page(path.name, ran, "us/headcount")
    assert f"mybinder.org/v2/gh/us/headcount/HEAD?labpath=docs%2Fnotebooks%2F{path.name}" in page
    assert page.count("```") % 2 == 0 and page.count('<div class="given">') == sum(
        "text/html" in data for data in shown
    )
    assert f'href="{path.name}" download' in notebook_pages.page(path.name, ran, None)
    assert "mybinder" not in notebook_pages.page(path.name, ran, None)


@of_each
def test_a_notebook_is_kept_without_outputs(path):
    """What came of a run is no part of a change. In JupyterLab: Edit, Clear Outputs of All Cells, before you save."""
    found = nbformat.read(path, 4)
    nbformat.validate(found)
    assert found.nbformat_minor >= 5 and set(found.metadata) <= {"kernelspec", "language_info"}
    for cell in found.cells:
        assert set(cell.metadata) <= {"alt"}
        assert cell.cell_type == "markdown" or (cell.outputs, cell.execution_count) == ([], None)
    assert found.cells[0].source.startswith("# ") and found.cells[-1].cell_type == "markdown"


@of_each
def test_its_code_imports_what_is_public(path):
    for node in ast.walk(ast.parse(code(path))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headcount"):
            assert node.module in PUBLIC
            module = importlib.import_module(node.module)
            assert {alias.name for alias in node.names} <= {name for name in dir(module) if name[0] != "_"}


@of_each
def test_its_links_lead_somewhere(path):
    for cell in nbformat.read(path, 4).cells:
        for target, _ in LINK.findall(cell.source if cell.cell_type == "markdown" else ""):
            assert (path.parent / target).exists(), target


def test_every_notebook_is_on_the_site_and_in_the_list_of_them():
    nav = (TOP / "mkdocs.yml").read_text()
    listed = (TOP / "docs" / "notebooks" / "index.md").read_text()
    for path in NOTEBOOKS:
        assert f": notebooks/{path.stem}.md\n" in nav and f"]({path.name})" in listed


def test_the_site_and_the_tests_run_them_with_the_same_libraries():
    site, tests = (dict(PIN.findall((TOP / place / "requirements.txt").read_text())) for place in ("docs", "tests"))
    shared = site.keys() & tests.keys()
    assert shared >= {"ipykernel", "matplotlib", "nbclient", "pandas"}
    assert {name: site[name] for name in shared} == {name: tests[name] for name in shared}


def test_a_notebook_that_raises_fails(tmp_path):
    broken = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")])
    with pytest.raises(Exception, match="ZeroDivisionError"):
        notebook_pages.executed(broken, tmp_path)


def test_what_binder_installs_is_there():
    wanted = (TOP / ".binder" / "requirements.txt").read_text().splitlines()[-1]
    project = (TOP / "pyproject.toml").read_text()
    assert wanted == ".[pandas,plot]" and all(f"\n{extra} = [" in project for extra in ("pandas", "plot"))
