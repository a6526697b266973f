"""`ls`, `show`, `sample`, `doctor`, help: verbs that write nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import pytest

import mixerscope
from mixerscope import __version__
from mixerscope.cli import VERBS, doctor
from mixerscope.cli.fields import type_name
from mixerscope.randomness import construction
from mixerscope.registry import ARCHITECTURES, MIXERS, OBJECTIVES, STAGES, TASKS, architecture_entries

SOURCE = str(Path(mixerscope.__file__).parents[1])


def outside(*words):
    """Runs words in a process of its own, which imports the same code as this one."""
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, env=environment)


def test_ls_lists_every_name(cli):
    code, out, _ = cli("ls")
    assert code == 0
    listed = {line.split()[0] for line in out.splitlines() if line.strip()}
    assert listed >= {*MIXERS.names(), *TASKS.names(), *(entry.name for entry in architecture_entries())}
    code, out, _ = cli("ls", "tasks")
    assert {line.split()[0] for line in out.splitlines()} == {"tasks", *TASKS.names()}


@pytest.mark.parametrize("words", [["ls"], ["ls", "mixers"], ["ls", "runs"], ["--help"], ["run", "--help"], ["nope"]])
def test_torch_is_not_imported_to_look_around(finished, words):
    # What a run's folder says is checked against its types, for which runs wait a tenth of a second and not for torch.
    names = ("torch", "numpy", "polars") if words == ["ls", "runs"] else ("torch", "pydantic", "numpy", "polars")
    heavy = f"[m for m in {names} if m in sys.modules]"
    code = f"import sys; from mixerscope.cli import main; main(sys.argv[1:]); sys.exit(str({heavy}))"
    done = outside(sys.executable, "-c", code, *words)
    assert done.stderr.splitlines()[-1] == "[]", done.stderr


def test_help_of_every_verb_has_an_example(cli):
    code, out, _ = cli("--help")
    assert code == 0
    for verb in VERBS:
        assert f" {verb} " in out
        code, text, _ = cli(verb, "--help")
        assert code == 0
        assert f"Example: mixerscope {verb}" in text
    assert "Example: mixerscope new spec" in cli("new", "spec", "--help")[1]


def test_the_examples_of_the_help_texts_are_understood(cli, tmp_path):
    for verb in ("ls", "show", "sample", "new"):
        words = VERBS[verb][2].split()[1:]
        assert cli(*words)[0] == 0
    assert (tmp_path / "my-mixer" / "pyproject.toml").is_file()


def test_no_words_and_version(cli):
    assert cli()[0] == 0
    assert cli("--version")[1].strip() == __version__


def test_python_dash_m():
    done = outside(sys.executable, "-m", "mixerscope", "ls", "nope")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", MIXERS.names())
def test_show_every_mixer(cli, name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")  # so that no equation is broken into lines
    code, out, _ = cli("show", name, "--width", "32", "--length", "9")
    assert code == 0
    with construction(0):
        mixer = MIXERS.load(name)(32)
    assert f"mixer {name}" in out
    assert f"architecture {name}" in out
    assert mixer.equation in out
    assert mixer.paper in out
    assert f"{sum(p.numel() for p in mixer.parameters()):,}" in out
    assert f"{mixer.state_size(9):,} numbers" in out


def test_show_reads_shapes_and_options(cli):
    _, out, _ = cli("show", "attention", "--width", "32")
    lines = [line.split(maxsplit=1) for line in out.splitlines()]
    assert ["blocks.i.mixer.pattern", "[b, t, 1, t]"] in [[a.strip() for a in line] for line in lines]
    assert any(line.split()[:3] == ["heads", "int", "1"] for line in out.splitlines())


def test_show_an_architecture(cli):
    code, out, _ = cli("show", "based", "--layers", "3")
    assert code == 0
    rows = [line.replace(",", "").split()[:3] for line in out.splitlines()]
    assert ["0", "base_conv", "kernel=3"] in rows
    assert ["1", "linear_attention", "feature_dim=8"] in rows
    assert ["2", "base_conv", "kernel=3"] in rows


@pytest.mark.parametrize("name", ARCHITECTURES.names())
def test_show_every_architecture(cli, name):
    code, out, _ = cli("show", name)
    assert code == 0
    assert f"architecture {name}" in out
    for field in ARCHITECTURES.load(name).model_fields:
        assert any(line.split()[:1] == [field] for line in out.splitlines()), field


def test_names_of_types():
    kernel = Annotated[int | Literal["long"], "checked elsewhere"]
    assert type_name(kernel) == 'int or "long"'
    assert type_name(tuple[kernel, ...]) == 'list of int or "long"'
    assert type_name(float | None) == "float or null"
    assert type_name(dict[str, int]) == "dict[str, int]"


@pytest.mark.parametrize("name", TASKS.names())
def test_show_every_task(cli, name):
    code, out, _ = cli("show", name)
    assert code == 0
    assert f"task {name}" in out
    for field in TASKS.load(name).model_fields:
        assert any(line.split()[:1] == [field] for line in out.splitlines()), field
    assert "answer" in out
    assert "slots that can be corrupted" in out
    known = bool(TASKS.load(name)().single_query().counterfactuals)
    assert ("counterfactuals with a known answer" in out) == known


@pytest.mark.parametrize("registry", [STAGES, OBJECTIVES], ids=["stages", "objectives"])
def test_show_every_stage_and_objective(cli, registry):
    for name in registry.names():
        code, out, _ = cli("show", name)
        assert code == 0
        assert f"{registry.kind} {name}" in out
        for field in registry.load(name).model_fields:
            assert any(line.split()[:1] == [field] for line in out.splitlines()), field
    assert cli("ls", f"{registry.kind}s")[1].split()[0] == f"{registry.kind}s"


def test_show_explains_fields(cli):
    out = cli("show", "ar")[1]
    [line] = [line for line in out.splitlines() if line.startswith("num_pairs")]
    assert line.strip().split(maxsplit=3)[1:] == ["int", "16", "Key-value pairs in a document."]


def test_sample_as_text(cli):
    code, out, err = cli("sample", "ar", "--n", "2", "--seed", "0", "--set", "num_pairs=3")
    assert (code, err) == (0, "")
    assert out.count("BOS") == 2
    assert "roles:" in out
    assert out.count(" at 8 asks for v") == 2
    assert cli("sample", "ar", "--n", "2", "--seed", "0", "--set", "num_pairs=3")[1] == out
    assert cli("sample", "ar", "--n", "2", "--seed", "1", "--set", "num_pairs=3")[1] != out


def test_sample_as_json_lines(cli):
    code, out, err = cli("sample", "ar", "--n", "3", "--set", "num_pairs=4", "--set", "num_queries=2", "--json")
    assert (code, err) == (0, "")
    documents = [json.loads(line) for line in out.splitlines()]
    assert len(documents) == 3
    for document in documents:
        tokens, roles = document["tokens"], document["roles"]
        assert tokens[roles["key"]] == tokens[roles["query"]]
        assert tokens[roles["value"]] == document["answer"] == document["targets"][str(roles["query"])]
        assert len(document["targets"]) == 2
        assert len(document["symbols"]) == len(tokens)
        assert document["labels"]["pair"] == (roles["key"] - 1) // 2


def test_a_preset_is_named_behind_a_colon(cli):
    code, out, _ = cli("sample", "atr:paper", "--n", "1")
    assert code == 0
    assert "└─" in out
    code, out, _ = cli("show", "ar:paper-as-written")
    assert code == 0
    assert "69 tokens" in out
    code, out, err = cli("sample", "atr:papr")
    assert (code, out) == (2, "")
    assert "did you mean 'paper'" in err


def test_colours_mark_the_roles(monkeypatch, cli):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    out = cli("sample", "ar", "--n", "1", "--set", "num_pairs=2")[1]
    assert "\x1b[1;36m" in out


def test_a_reader_that_leaves_is_no_error():
    done = outside("bash", "-c", f"{sys.executable} -m mixerscope sample ar --n 3000 --json | head -1")
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_doctor_finds_this_machine_well(cli, tmp_path):
    code, out, _ = cli("doctor")
    assert code == 0, out
    assert "identity patches change no bit" in out
    assert "all that is required works" in out
    assert list(tmp_path.iterdir()) == []


def test_doctor_says_what_is_broken(cli, tmp_path, monkeypatch):
    (tmp_path / "runs").write_text("a file")
    (tmp_path / "brokenlib.py").write_text("raise RuntimeError('no driver')")
    (tmp_path / "finelib.py").write_text("__version__ = '1.2.3'")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    monkeypatch.setattr(doctor, "OPTIONAL", ("brokenlib", "finelib", "no_such_library"))
    monkeypatch.setattr(doctor, "REQUIRED", ("torch", "no-such-package"))
    code, out, _ = cli("doctor")
    rows = [line.strip().split(maxsplit=2) for line in out.splitlines()]
    states = {row[0]: row[1:] for row in rows if len(row) == 3}
    assert code == 1
    assert states["brokenlib"] == ["broken", "RuntimeError: no driver"]
    assert states["finelib"][0] == "usable"
    assert states["no_such_library"][0] == "missing"
    assert states["no-such-package"][0] == "broken"
    assert "broken: no-such-package, runs folder" in out


def test_show_a_mixer_that_needs_to_be_told_something(cli, monkeypatch):
    class Told(MIXERS.load("attention")):
        """Attention whose heads have no default."""

        def __init__(self, width, *, heads: int):
            super().__init__(width, heads=heads)

    monkeypatch.setattr(MIXERS, "_entries", dict(MIXERS._entries))
    monkeypatch.setattr(MIXERS, "_loaded", dict(MIXERS._loaded))
    MIXERS.register("told")(Told)
    code, out, _ = cli("show", "told")
    assert code == 0
    assert "not known without a value for heads" in out
    assert any(line.split() == ["heads", "int", "required"] for line in out.splitlines())
