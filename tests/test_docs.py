"""The pages of the documentation: links, tables, exit codes, the site."""

from __future__ import annotations

import importlib.util
import itertools
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest

from distdbg.cli import cli
from distdbg.diagnosis.catalogue import documented
from distdbg.errors import EXIT_CODES
from tests.docs.blocks import IDS, PAGES, ROOT

#: Pages of more than 1,200 words, and why they are one page.
LONG = {
    "README.md": "two thirds are tables: symptoms, commands, exit codes",
    "CONTRIBUTING.md": "what a contributor looks up, a section for each kind of change",
    "explain.md": "all forms of files that are read, in one list",
    "guards.md": "a table of all guards",
    "hang-dump.md": "the reference of the verdicts on hangs",
    "launch.md": "the reference of launch: each section is found by a link from an error or from --help",
    "lint-engine.md": "a table of what a rule can ask, and the limits of each answer",
    "lint.md": "a table of all rules",
    "memory.md": "the reference of five commands that answer one question",
    "profile.md": "the reference of profile, with the meaning of each column",
    "rehearse.md": "the reference of rehearse, with its limits and a table of measured peaks",
    "report.md": "the reference of the run directory and of report.json",
    "shrink.md": "the reference of shrink-model: each family of models that is special",
    "slurm.md": "one section for each thing that Slurm does to a job",
    "tested-on.md": "tables: features, one real GPU, reactions of torch",
    "symptoms.md": "a real run for each symptom",
    "watch.md": "the reference of four levels of watching",
}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")):
        if not re.match(r"[a-z]+:", target):
            led_to = page.parent / target if target else page
            assert led_to.exists(), f"{page.name} links to {target}"
            assert not anchor or anchor in anchors(led_to), f"{page.name} links to #{anchor} of {led_to.name}"


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_the_words_are_plain(page: Path) -> None:
    """Phrases that a reader who is no native speaker stumbles over; the list grows with each one that is found."""
    odd = r"\b(?:(?:is|are|was|were) (?:told|had) |hears? of|as ever\b|comes? to be\b|stands at the end)"
    assert not re.findall(odd, page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Those that GitHub and the site give to a page's headings."""
    headings = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_a_long_page_has_sections_and_a_reason(page: Path) -> None:
    """The site and GitHub make a table of contents of the sections."""
    text = page.read_text(encoding="utf-8")
    is_long = len(text.split()) > 1200
    assert is_long == (page.name in LONG)
    assert not is_long or len(re.findall(r"^## ", text, re.MULTILINE)) >= 3


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_all_readers_of_markdown_agree_about_the_page(page: Path) -> None:
    """mkdocs takes a block right below a paragraph, and a list indented by two, for a part of what stands above."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    below = re.findall(r"^(?![ |]|[-*\d])\S.*\n(?:    |\||[-*] ).*", text, re.MULTILINE)
    nested = re.findall(r"^ {1,3}[-*] .*", text, re.MULTILINE)
    assert not below + nested


def test_every_preset_is_described() -> None:
    page = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    names = {p.stem.removeprefix("preset-") for p in (ROOT / "configs").glob("preset-*.yaml")}
    assert set(re.findall(r"^\| `([a-z-]+)`", page, re.MULTILINE)) == names


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", index))
    assert {p.name for p in (ROOT / "docs").rglob("*.md")} - {"index.md"} == listed


def test_the_output_that_is_shown_has_the_verdict_of_the_program() -> None:
    """The programs are run by other tests, which hold them to the verdict in their docstring."""
    page = (ROOT / "docs" / "symptoms.md").read_text(encoding="utf-8")
    command = r"^    \$ distdbg .*?(tests/programs/\S+\.py)\n"
    shown = re.findall(command + r"((?:    (?!\$).*\n|\n)*)", page, re.MULTILINE)
    assert len(shown) >= 3
    for program, output in shown:
        text = (ROOT / program).read_text(encoding="utf-8")
        verdict = re.search(r"^(?:Verdict|Guard|Numerics|Overfit): ([a-z-]+)", text, re.MULTILINE)
        assert verdict is not None and verdict[1] in output, f"{program}: {output}"


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    listed = re.findall(r": ([\w/-]+\.md)$|^ +- ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    there = {p.relative_to(ROOT / "docs").as_posix() for p in (ROOT / "docs").rglob("*.md")}
    assert sorted(filter(None, itertools.chain(*listed))) == sorted(there | site_pages().pages().keys())


def test_the_pages_that_are_written_from_the_code_are_whole() -> None:
    pages = site_pages().pages()
    commands = pages["reference/commands.md"]
    assert {f"## distdbg {name}\n" for name in cli.list_commands(click.Context(cli))} <= set(
        re.findall(r"^## .*\n", commands, re.MULTILINE)
    )
    assert "--rdzv-endpoint" in commands  # of torchrun
    findings = re.findall(r"^### (.*)", pages["reference/findings.md"], re.MULTILINE)
    assert sorted(findings) == sorted(documented())
    assert "## hang\n" in pages["reference/presets.md"]


def test_links_out_of_the_docs_lead_to_pages_of_the_site() -> None:
    written = site_pages()
    text = "[a](../README.md#exit-codes) [b](launch.md) [c](../configs) [d](https://x.org/y.md) [e](../nowhere)"
    assert written.with_links(text, "slurm.md", "docs/slurm.md") == (
        "[a](reference/commands.md#exit-codes) [b](launch.md) [c](reference/presets.md) [d](https://x.org/y.md) "
        "[e](../nowhere)"
    )
    assert written.with_links("[a](docs/x.md)", "contributing.md", "CONTRIBUTING.md") == "[a](x.md)"


@pytest.mark.slow
def test_the_site_is_built_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    pytest.importorskip("material")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "rank-conditional-collective" in (tmp_path / "reference" / "findings.html").read_text()
    assert not list(tmp_path.rglob("*.py*"))


def site_pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "docs" / "site_pages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readme_lists_every_exit_code() -> None:
    rows = re.findall(r"^\| (\d+) \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {int(r) for r in rows} == set(EXIT_CODES)


def test_make_targets_that_are_named_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in PAGES:
        named = set(re.findall(r"`make ([a-z-]+)", page.read_text(encoding="utf-8")))
        assert named <= targets, f"{page.name}: {named - targets}"
