"""What the README and the docs show can be typed: commands, options, links, exit codes."""

from __future__ import annotations

import importlib.util
import itertools
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest

import distdbg
from distdbg.cli import cli
from distdbg.diagnosis.catalogue import documented
from distdbg.errors import EXIT_CODES
from distdbg.launch.plan.torchrun_flags import FLAGS
from distdbg.settings import settle

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
IDS = [p.relative_to(ROOT).as_posix() for p in PAGES]


def commands(page: Path) -> Iterator[tuple[int, str]]:
    """(line, command) for each `distdbg …` in a code block (after a prompt or not) or between backticks."""
    in_block = continued = ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_block = "" if in_block else line.strip()
            continue
        if in_block or line.startswith("    "):
            text = continued + line.strip().removeprefix("$ ")
            continued = text[:-1] if text.endswith("\\") else ""
            if text.startswith("distdbg ") and not continued:
                yield number, text
        else:
            yield from ((number, code) for code in re.findall(r"`(distdbg [^`]+)`", line))


def unknown_options(text: str) -> Iterator[str]:
    """What of a command line distdbg does not know: its command, or an option before the first script or program."""
    words = shlex.split(text.replace("…", ""), comments=True)[1:]
    command: click.Command = cli
    context = click.Context(cli, info_name="distdbg")
    while words:
        word = words.pop(0)
        if word in ("|", ">", "2>", "<", "&&", ";", "--"):
            return  # the end, or another program's words
        if word.startswith("-") and word != "-":
            name, equals, _ = word.partition("=")
            takes_value = find(command, context, name)
            if takes_value is None:
                yield f"{context.info_name} has no option {name}"
            elif takes_value and not equals and words:
                words.pop(0)
        elif isinstance(command, click.Group):
            inner = command.get_command(context, word)
            if inner is None:
                if re.fullmatch(r"[a-z-]+", word):
                    yield f"there is no command {word}"
                return
            command, context = inner, click.Context(inner, parent=context, info_name=word)
        elif context.info_name in ("launch", "rehearse", "overfit", "compile-report"):
            return  # the script's own arguments follow


def find(command: click.Command, context: click.Context, name: str) -> bool | None:
    """Whether an option takes a value; None where the command has no such option. launch has torchrun's, too."""
    for option in command.get_params(context):
        if isinstance(option, click.Option) and name in (*option.opts, *option.secondary_opts):
            return not (option.is_flag or option.count)
    flags = {f"--{f.name}": f for f in FLAGS} | {f"-{f.short}": f for f in FLAGS if f.short}
    return flags[name].takes_value if context.info_name == "launch" and name in flags else None


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_command_can_be_typed(page: Path) -> None:
    wrong = [f"{page.name}:{line}: {why}" for line, text in commands(page) for why in unknown_options(text)]
    assert not wrong


def test_the_search_finds_commands_and_mistakes() -> None:
    assert len(list(commands(ROOT / "README.md"))) > 10
    assert list(unknown_options("distdbg runs prune --keep 3 --older 3d")) == ["prune has no option --older"]
    assert list(unknown_options("distdbg nonesuch x")) == ["there is no command nonesuch"]
    assert not list(unknown_options("distdbg cancel RUN --timeout 5 | head --nonesuch"))


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")):
        if not re.match(r"[a-z]+:", target):
            led_to = page.parent / target if target else page
            assert led_to.exists(), f"{page.name} links to {target}"
            assert not anchor or anchor in anchors(led_to), f"{page.name} links to #{anchor} of {led_to.name}"


def anchors(page: Path) -> set[str]:
    """Those that GitHub and the site give to a page's headings."""
    headings = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_a_long_page_has_sections(page: Path) -> None:
    """The site and GitHub make a table of contents of them."""
    text = page.read_text(encoding="utf-8")
    assert len(text.split()) <= 1200 or len(re.findall(r"^## ", text, re.MULTILINE)) >= 3


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_all_readers_of_markdown_agree_about_the_page(page: Path) -> None:
    """mkdocs takes a block right below a paragraph, and a list indented by two, for a part of what stands above."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    below = re.findall(r"^(?![ |]|[-*\d])\S.*\n(?:    |\||[-*] ).*", text, re.MULTILINE)
    nested = re.findall(r"^ {1,3}[-*] .*", text, re.MULTILINE)
    assert not below + nested


def test_the_job_file_that_is_shown_is_one(tmp_path: Path) -> None:
    shown = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "launch.md").read_text(encoding="utf-8"), re.DOTALL)
    assert shown
    for text in shown:
        (tmp_path / "job.yaml").write_text(text)
        settings, _ = settle({}, tmp_path / "job.yaml")
        assert settings.program


def test_the_script_that_is_shown_runs_outside_a_run(tmp_path: Path) -> None:
    shown = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "library.md").read_text(encoding="utf-8"), re.DOTALL)
    for text in shown:
        done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "step 2: loss 0.3333 on 1 ranks" in done.stdout, done.stderr
    assert set(distdbg.__all__) == set(
        re.findall(r"^\| `(\w+)\(", (ROOT / "docs" / "library.md").read_text(), re.MULTILINE)
    )


def test_every_preset_is_described() -> None:
    page = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    names = {p.stem.removeprefix("preset-") for p in (ROOT / "configs").glob("preset-*.yaml")}
    assert set(re.findall(r"^\| `([a-z-]+)`", page, re.MULTILINE)) == names


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", index))
    assert {p.name for p in (ROOT / "docs").rglob("*.md")} - {"index.md"} == listed


@pytest.mark.parametrize("name", ["getting-started", "symptoms"])
def test_the_output_that_is_shown_has_the_verdict_of_the_program(name: str) -> None:
    """The programs are run by other tests, which hold them to the verdict in their docstring."""
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
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
        named = set(re.findall(r"(?:`|^    |^\$ )make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
        assert named <= targets, f"{page.name}: {named - targets}"
