"""The documentation site: nothing is missing from it, nothing on it is out of date."""

import re
import shutil
import threading
import tomllib
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from xml.etree import ElementTree

import pytest
from docsite.__main__ import list_versions
from docsite.__main__ import main as build_site
from docsite.messages import quoted, sentences
from docsite.pictures import PICTURES
from docsite.reference import arguments, reference_pages
from docsite.site import DOCS, ROOT, NoPlace, configuration, listed, places, stage

import mixerscope
from mixerscope.cli import VERBS, make_app
from mixerscope.registry import ARCHITECTURES, MIXERS, OBJECTIVES, OURS, STAGES, TASKS
from mixerscope.spec import ModelSpec, RunSpec, TrainSpec


@pytest.fixture(scope="module")
def reference() -> dict[str, str]:
    return reference_pages()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("site")
    return folder, stage(folder)


def test_every_public_name_is_in_the_reference(reference):
    page = reference["reference/api.md"]
    for name in mixerscope.__all__:
        assert f"\n## {name}\n" in page, name


def test_every_command_and_option_is_in_the_reference(reference):
    page, app = reference["reference/cli.md"], make_app()
    for verb in VERBS:
        inner = [name for name in app[verb] if not name.startswith("-")]
        for words, command in [(verb, app[verb])] if not inner else [(f"{verb} {n}", app[verb][n]) for n in inner]:
            section = page.partition(f"# mixerscope {words}\n")[2].partition("\n## ")[0]
            for argument in arguments(command):
                row = re.search(rf"^\| `{re.escape(argument.names[0])}` \|.*\| (.*) \|$", section, re.M)
                assert row, f"{words}: {argument.names[0]}"
                assert row[1].strip(), f"{words}: {argument.names[0]} is not explained"


def test_every_field_of_a_spec_and_of_a_component_is_in_the_reference(reference):
    page = reference["reference/spec.md"]
    for cls, path in ((RunSpec, ""), (ModelSpec, "model."), (TrainSpec, "train.")):
        for name in cls.model_fields:
            assert f"| `{path}{name}` |" in page, name
    components = reference["reference/components.md"]
    for registry in (TASKS, MIXERS, ARCHITECTURES, STAGES, OBJECTIVES):
        for entry in registry.entries():
            if entry.origin == OURS:
                assert f"### {entry.name}\n" in components, entry.name
    for name in TASKS.load("ar").model_fields:
        assert f"| `task.{name}` |" in components


def test_navigation_lists_every_page_and_nothing_else(site):
    folder, pages = site
    text = configuration(pages, folder)
    assert sorted(listed(text)) == sorted(page for page in pages if page.endswith(".md"))
    project = tomllib.loads(text)["project"]
    assert project["copyright"] == f"Mixerscope {mixerscope.__version__}, Apache-2.0"


def test_links_on_the_site_lead_to_pages_and_headings(site):
    folder, pages = site
    there = {*pages}
    for page in pages:
        if not page.endswith(".md"):
            continue
        text = (folder / page).read_text()
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)]+))?\)", re.sub(r"`[^`]*`", "", text)):
            found = (Path(page).parent / target) if target else Path(page)
            place = str(found.as_posix())
            place = str((folder / place).resolve().relative_to(folder.resolve()))
            assert place in there, f"{page} links to {target}"
            if anchor:
                heads = re.findall(r"^#+ (.*)$", (folder / place).read_text(), re.M)
                slugs = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
                assert anchor in slugs, f"{page} links to {target}#{anchor}"


def test_a_link_to_something_that_is_not_on_the_site_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("docsite.site.TAKEN_IN", {})
    monkeypatch.setattr("docsite.site.reference_pages", dict)
    with pytest.raises(NoPlace, match="not on the site"):
        stage(tmp_path)


def test_pictures_are_those_that_the_code_draws():
    for name, draw in PICTURES.items():
        drawn = draw()
        ElementTree.fromstring(drawn)
        assert (DOCS / "pictures" / f"{name}.svg").read_text() == drawn, f"{name}: `make docs` draws it anew"
        assert f"pictures/{name}.svg" in (DOCS / "concepts.md").read_text()


def test_every_message_on_the_errors_page_is_in_the_code():
    said = quoted((DOCS / "errors.md").read_text())
    assert len(said) >= 40
    code = sentences()
    for message in said:
        assert any(message in sentence for sentence in code), message


def test_the_check_of_messages_can_fail():
    assert quoted("| `no such thing` | cause | cure |") == ["no such thing"]
    assert not any("no mixer was ever called thus" in sentence for sentence in sentences())


def test_citation_and_page_name_this_version():
    assert f"\nversion: {mixerscope.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"version {mixerscope.__version__}" in (DOCS / "cite.md").read_text()


def test_what_is_taken_in_from_beside_the_docs_is_there():
    for path in places():
        assert path.is_file(), path


def test_percentages_are_written_one_way():
    """`95%`, as Python formats them: on pages, in messages, in figures."""
    kinds = (".py", ".md", ".j2", ".js", ".ipynb")
    found = [path for top in ("src", "docs", "benchmarks") for path in (ROOT / top).rglob("*") if path.suffix in kinds]
    wrong = [path for path in found if re.search(r"[0-9}] %(?![}])", path.read_text(encoding="utf-8"))]
    assert wrong == []
    assert len(found) > 300


@pytest.mark.slow
def test_the_site_has_a_menu_of_its_versions(tmp_path: Path, browser):
    pytest.importorskip("zensical", reason="zensical is not installed (extra docs)")
    assert build_site(tmp_path) == 0
    older = tmp_path / "0.0.10"
    shutil.copytree(tmp_path / mixerscope.__version__, older)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "index.html").write_text("somebody else's")
    assert list_versions(tmp_path) == [mixerscope.__version__, "0.0.10"]
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tab = browser.new_page()
        tab.goto(f"http://127.0.0.1:{server.server_port}/")
        tab.locator(".md-version__link").nth(1).wait_for(state="attached", timeout=15_000)
        shown = tab.locator(".md-version__link").all()
        assert [link.text_content().strip() for link in shown] == [mixerscope.__version__, "0.0.10"]
        assert shown[1].get_attribute("href").endswith("/0.0.10/")
        tab.close()
        server.shutdown()
