"""Each command names its exit codes at the end of its help, and the docs repeat that line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from distdbg.cli import cli
from distdbg.errors import EXIT_CODES, EXIT_USAGE
from tests.cli.test_bad_input import documented

ROOT = Path(__file__).parents[2]
#: page -> the commands that it describes
PAGES = {
    "bisect": ("bisect",),
    "compile-report": ("compile-report",),
    "explain": ("explain",),
    "hang-dump": ("hang-dump",),
    "launch": ("launch",),
    "lint": ("lint",),
    "memory": ("memory analyze", "memory diff", "memory snapshot", "memory estimate"),
    "overfit": ("overfit",),
    "preflight": ("preflight",),
    "profile": ("profile",),
    "report": ("report", "diff"),
    "shrink": ("shrink-model",),
    "slurm": ("attach",),
    "top": ("top",),
    "watch": ("replay",),
}


def commands(group: click.Group, above: str = "") -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{above}{name} ")
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield f"{above}{name}", command


ALL = dict(commands(cli))


def line_of(name: str) -> str:
    epilog = ALL[name].epilog or ""
    return epilog[epilog.index("Exit codes:") :]


@pytest.mark.parametrize("name", ALL)
def test_every_command_names_its_codes(name):
    assert EXIT_USAGE in documented(name.split()), ALL[name].epilog
    assert documented(name.split()) <= {*EXIT_CODES}


@pytest.mark.parametrize("name", ["explain", "report", "hang-dump", "memory analyze", "profile"])
def test_what_judges_a_job_can_be_undecided(name):
    assert {0, 10, 11} <= documented(name.split())


@pytest.mark.parametrize("page", PAGES)
def test_the_docs_repeat_it(page):
    text = " ".join((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8").split())
    assert [name for name in PAGES[page] if line_of(name) not in text] == []


def test_the_readme_has_every_code():
    rows = [line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert [code for code, meaning in EXIT_CODES.items() if f"| {code} | {meaning} |" not in rows] == []
