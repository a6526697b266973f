"""Which code a class of a notebook is: that of its cell, and of all that the cell refers to."""

import linecache
import subprocess
import sys
from itertools import count
from pathlib import Path
from types import ModuleType

import pytest

from mixerscope.code import code_identity
from mixerscope.errors import UserError
from tests.code.sources import sha, write


class Notebook:
    """Runs cells as IPython does: compiled under a made-up file name whose text `linecache` knows."""

    numbers = count()

    def __init__(self) -> None:
        self.module = ModuleType(f"notebook{next(self.numbers)}")
        self.module.__dict__["__name__"] = "notebook"
        sys.modules["notebook"] = self.module

    def run(self, text: str) -> None:
        name = f"<ipython-input-{next(self.numbers)}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec"), vars(self.module))

    def identity(self, name: str = "Mine") -> str:
        return sha(code_identity(getattr(self.module, name)))


@pytest.fixture
def notebook():
    before = dict(linecache.cache)
    yield Notebook()
    linecache.cache.clear()
    linecache.cache.update(before)


CONSTANTS = """
SCALE = 2
LAGS = (1, 2)
OTHER = 5
x = 1
"""
FUNCTIONS = """
def twice(x):
    return SCALE * x

def helper(x):
    return twice(x)

def unrelated(x):
    return OTHER

quick = lambda x: x + 1
"""
ABOVE = """
def mark(cls):
    return cls

class Base:
    def __init__(self):
        self.lags = LAGS
"""
CLASS = """
@mark
class Mine(Base):
    def forward(self, x):
        OTHER = 3
        return [helper(quick(y)) for y in x] + [OTHER]
"""
CELLS = [CONSTANTS, FUNCTIONS, ABOVE, CLASS]


def after(notebook: Notebook, *more: str) -> str:
    for cell in (*CELLS, *more):
        notebook.run(cell)
    return notebook.identity()


@pytest.mark.parametrize(
    "edit",
    [
        "SCALE = 3\n",
        "LAGS = (1, 3)\n",
        "def twice(x):\n    return x + x\n",
        "quick = lambda x: x + 2\n",
        ABOVE.replace("return cls", "return type(cls)(cls.__name__, (cls,), {})"),
        ABOVE.replace("self.lags = LAGS", "self.lags = LAGS[1:]") + CLASS,
        CLASS.replace("OTHER = 3", "OTHER = 4"),
        "def forward(self, x):\n    return 0\n\n\nMine.forward = forward\n",
    ],
)
def test_an_edit_of_what_a_cell_refers_to_is_other_code(notebook, edit):
    before = after(notebook)
    assert after(notebook) == before
    assert after(notebook, edit) != before


@pytest.mark.parametrize(
    "edit", ["def unrelated(x):\n    return 0\n", "OTHER = 6\n", "x = 2\n", "new = 1\n", "\n\n" + CLASS]
)
def test_an_edit_of_what_a_cell_does_not_refer_to_is_the_same_code(notebook, edit):
    before = after(notebook)
    assert after(notebook, edit) == before


@pytest.mark.parametrize(
    "cell",
    [
        "import near\nclass Mine:\n    def forward(self):\n        return near.x\n",
        "from near import f\nclass Mine:\n    def forward(self):\n        return f()\n",
        "from near import Near\nclass Mine(Near):\n    def forward(self):\n        return 1\n",
        "class Mine:\n    def forward(self):\n        from near import f\n        return f()\n",
    ],
)
def test_an_edited_file_that_a_cell_refers_to_is_other_code(notebook, tmp_path, cell):
    text = "x = 1\ndef f():\n    return x\nclass Near: ...\n"
    sys.path.insert(0, str(write(tmp_path, near=text)))
    notebook.run(cell)
    before = notebook.identity()
    write(tmp_path, near=text.replace("x = 1", "x = 2"))
    assert notebook.identity() != before


def test_what_a_class_made_by_a_function_closes_over_counts(notebook):
    notebook.run(
        "def make(k):\n    def inner(n):\n        return inner(n - k)\n    class Mine:\n"
        "        def forward(self):\n            return inner(k)\n    return Mine\n"
    )
    notebook.run("One, Two, Again = make(1), make(2), make(1)\n")
    assert notebook.identity("One") == notebook.identity("Again") != notebook.identity("Two")


def test_a_cell_without_methods_is_found_while_there_is_one_of_its_name(notebook):
    notebook.run("class Mine:\n    scale: int = 1\n")
    before = notebook.identity()
    notebook.run("class Mine:\n    scale: int = 1\n")
    assert notebook.identity() == before
    notebook.run("class Mine:\n    scale: int = 2\n")
    with pytest.raises(UserError, match="the source of Mine must be readable"):
        notebook.identity()


def test_the_identity_of_a_cell_does_not_depend_on_the_process():
    code = (
        "import sys\nfrom tests.code.test_cells import CELLS, Notebook, after\nprint(after(Notebook()))\n"
        "assert 'notebook' in sys.modules\n"
    )
    seeds = [{"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[1])} for seed in ("1", "2")]
    shown = [
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env).stdout
        for env in seeds
    ]
    assert shown[0] == shown[1] != ""


def test_a_class_of_main_without_a_file_is_a_cell():
    code = (
        "import linecache\nfrom mixerscope.code import code_identity\n"
        "def run(text):\n    linecache.cache['<cell>'] = (len(text), None, text.splitlines(True), '<cell>')\n"
        "    exec(compile(text, '<cell>', 'exec'), globals())\n    return code_identity(Mine)\n"
        "text = 'class Mine:\\n    def f(self):\\n        return 1\\n'\n"
        "assert run(text) == run('# moved\\n' + text) != run(text.replace('1', '2'))\n"
        "__file__ = '/left/by/run.py'\n"
        "assert run(text) != run(text.replace('1', '2'))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_class_without_readable_source_is_refused_in_one_sentence(notebook):
    exec("class Mine:\n    def forward(self):\n        return 1\n", vars(notebook.module))
    with pytest.raises(UserError) as caught:
        notebook.identity()
    assert str(caught.value) == (
        "the source of Mine must be readable so that results can be told apart; put it in a file"
    )
