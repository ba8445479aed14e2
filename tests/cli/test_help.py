"""`--help`: commands in groups, a line each; examples that can be typed, as they were written."""

from __future__ import annotations

import re

import click
import pytest
from click.testing import CliRunner

from distdbg.cli import GROUPS, cli, head_of
from tests.cli.test_exits import ALL
from tests.docs.blocks import refused

NAMES = cli.list_commands(click.Context(cli))


def shown(*words: str, columns: int = 80) -> list[str]:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(cli, [*words, "--help"]).output.splitlines()


def examples_of(command: click.Command) -> list[str]:
    _, _, text = (command.epilog or "").partition("Examples:\n")
    return [line.strip() for line in text.partition("\n\n")[0].splitlines()]


def test_every_command_is_in_one_group_and_has_one_line() -> None:
    seen: dict[str, list[str]] = {}
    group = ""
    for line in shown():
        if heading := re.match(r"([A-Z][a-z ]+):$", line):
            group = heading[1].lower()
        elif (row := re.match(r"  ([a-z-]+) +(\S.*)", line)) and group in GROUPS:
            seen.setdefault(group, []).append(row[1])
            assert (group, row[2]) == head_of(row[1]), "the whole line fits into 80 columns"
    assert list(seen) == list(GROUPS)
    assert sorted(name for names in seen.values() for name in names) == NAMES


@pytest.mark.parametrize("name", ALL)
def test_examples_can_be_typed(name: str) -> None:
    lines = examples_of(ALL[name])
    assert 1 <= len(lines) <= 3
    for line in lines:
        command = line.partition("  #")[0].removeprefix('eval "$(').removesuffix(')"').rstrip(' )"')
        assert command.startswith("distdbg ") and not refused(command), line
    assert any(f"distdbg {name}" in line for line in lines)


@pytest.mark.parametrize("columns", [80, 60])
@pytest.mark.parametrize("name", ALL)
def test_examples_are_not_wrapped(name: str, columns: int) -> None:
    lines = [line.strip() for line in shown(*name.split(), columns=columns)]
    assert set(examples_of(ALL[name])) <= {*lines}
    assert max(map(len, examples_of(ALL[name]))) <= 76
