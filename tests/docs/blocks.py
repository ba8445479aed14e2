"""The code blocks of a page, and the commands in them, read by the command line's own parser."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import click

from distdbg.cli import cli
from distdbg.errors import UsageError

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
IDS = [p.relative_to(ROOT).as_posix() for p in PAGES]
#: What a line of a shell begins with; every other block without a language is output, or a drawing.
PROGRAMS = ("chroot", "debootstrap", "distdbg", "kubectl", "make", "man", "pip", "pipx", "podman", "python3",
            "rattler-build", "source", "torchrun", "uv")  # fmt: skip
_END = re.compile(r"^(?:\||>|>>|2>|<|&&|;|&)$")


@dataclass(frozen=True)
class Block:
    """`line`: of its first line in the page. `language`: empty where the block is only indented."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def first_line(self) -> str:
        return self.text.partition("\n")[0].strip()

    @property
    def is_of_a_shell(self) -> bool:
        return not self.language and program_of(self.first_line.removeprefix("$ ")) in PROGRAMS

    @property
    def shell_lines(self) -> list[str]:
        """Without prompts, continued lines joined; of a block with prompts, what follows one: the rest is output."""
        lines = self.text.replace("\\\n", "").splitlines()
        prompted = [line for line in lines if line.startswith("$ ")]
        return [line.removeprefix("$ ") for line in prompted or lines if line.strip()]

    @property
    def output(self) -> str:
        return "\n".join(self.text.splitlines()[1:]) if self.text.startswith("$ ") else ""


def program_of(line: str) -> str:
    return line.split(maxsplit=1)[0] if line.split() else ""


def blocks(page: Path) -> Iterator[Block]:
    """Those between fences, and those that are indented by four outside of a list."""
    name = page.relative_to(ROOT).as_posix()
    lines = page.read_text(encoding="utf-8").splitlines()
    number, in_list = 0, False
    while number < len(lines):
        line, start = lines[number], number + 1
        number += 1
        if fence := re.match(r"( *)```(\w*)$", line):
            end = lines.index(f"{fence[1]}```", number)
            yield Block(name, start + 1, fence[2], "\n".join(part[len(fence[1]) :] for part in lines[number:end]))
            number = end + 1
        elif line.startswith("    ") and not (in_list and not line.startswith(" " * 8)):
            while number < len(lines) and (lines[number].startswith("    ") or not lines[number].strip()):
                number += 1
            body = [part[4:] for part in lines[start - 1 : number]]
            yield Block(name, start, "", "\n".join(body).rstrip())
        elif line.strip():
            in_list = bool(re.match(r"\d+\. |[-*] ", line)) or (in_list and line.startswith("  "))


def typed(page: Path) -> Iterator[tuple[str, str]]:
    """(where, command) for each `distdbg …` of a page: in a block, after a pipe, or between backticks."""
    found = list(blocks(page))
    for block in found:
        for line in block.shell_lines if block.is_of_a_shell else []:
            part = line.partition("| ")[2] if line.startswith("kubectl") else line
            if part.startswith("distdbg "):
                yield str(block), part
    name = page.relative_to(ROOT).as_posix()
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("    "):
            yield from ((f"{name}:{number}", code) for code in re.findall(r"`(distdbg [^`]+)`", line))


def words_of(command: str) -> list[str]:
    """The words after `distdbg`, up to a pipe or another command. A `#` within a word begins no comment."""
    words = shlex.split(re.sub(r"(?:^|\s)#.*", "", command).replace("…", ""))[1:]
    end = next((i for i, word in enumerate(words) if _END.match(word)), len(words))
    return words[:end]


def refused(text: str, *, whole: bool = True) -> str:
    """Why distdbg does not take a command line, or nothing. Files need not exist; a part of one may miss words."""
    try:
        with mock.patch.object(click.Path, "convert", lambda self, value, *_: self.coerce_path_result(value)):
            _parse(cli, words_of(text), click.Context(cli, info_name="distdbg"))
    except (click.MissingParameter, click.BadOptionUsage) as error:
        return error.format_message() if whole else ""
    except UsageError as error:  # of torchrun's spellings
        return error.message if whole or "needs a value" not in error.message else ""
    except click.UsageError as error:
        return error.format_message()
    return ""


def _parse(command: click.Command, words: list[str], context: click.Context) -> None:
    if not isinstance(command, click.Group):
        command.make_context(command.name or "", [w for w in words if w not in ("-h", "--help")], parent=context)
    elif words and words[0].startswith("-"):
        known = {name for option in command.get_params(context) for name in option.opts}
        if words[0] not in known:
            raise click.NoSuchOption(words[0])
    elif words:
        inner = command.get_command(context, words[0])
        if inner is not None:
            _parse(inner, words[1:], click.Context(command, parent=context))
        elif re.fullmatch(r"[a-z-]+", words[0]):  # else a placeholder: `distdbg COMMAND`
            raise click.UsageError(f"there is no command {words[0]}")
