"""The notebooks of the docs: kept as they ran, run again by a test, and pages of the site."""

import subprocess
import sys

import nbclient
import nbformat
import pytest
from docsite.notebooks import NOTEBOOKS, ROOT, as_markdown, kinds

PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))


def test_there_are_three():
    assert [path.stem for path in PATHS] == ["own-mixer", "own-model", "reading-a-verdict"]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_each_is_kept_as_it_ran(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "from the first to the last, once"
    assert "error" not in str(kinds(notebook))
    assert any("text/html" in shown for shown in kinds(notebook))
    assert path.stat().st_size < 100_000
    assert str(ROOT) not in path.read_text()


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_each_is_a_page_of_the_site(path):
    page = as_markdown(path)
    assert page.startswith("# ")
    assert "<table>" in page
    assert page.count("```python\n") == sum(
        cell.cell_type == "code" for cell in nbformat.read(path, as_version=4).cells
    )


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_each_runs_from_the_first_cell_to_the_last(path):
    check = [sys.executable, "-m", "docsite.notebooks", "--check", path.stem]
    ran = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{path.name} runs" in ran.stdout


@pytest.mark.slow
def test_a_cell_that_registers_a_class_can_be_run_again():
    """The same cell makes the same runs, an edited one makes others, and the first one again those of before."""
    cells = [cell.source for cell in nbformat.read(NOTEBOOKS / "own-mixer.ipynb", as_version=4).cells]
    [start] = [cell for cell in cells if "import mixerscope as ms" in cell]
    [mixer] = [cell for cell in cells if "@ms.register" in cell]
    edited = mixer.replace("(1 - a) * x[:, t]", "x[:, t]")
    assert edited != mixer
    shown = "print(ms.RunSpec.model_validate(ms.preset('small', 'ar', 'decay')).run_id)"
    code = [start, *(part for cell in (mixer, mixer, edited, mixer) for part in (cell, shown))]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in code])
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    first, again, other, back = (cell.outputs[0].text for cell in notebook.cells if cell.source == shown)
    assert first == again == back != other
