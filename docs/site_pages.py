"""Write the reference pages of the documentation site from the code, while mkdocs builds it: nothing of them is kept.

mkdocs calls `on_files` and `on_page_markdown` (`hooks:` in mkdocs.yml). `pages()` needs no mkdocs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, normpath, relpath
from typing import Any

import click

from distdbg.cli import cli
from distdbg.diagnosis.catalogue import documented
from distdbg.errors import EXIT_CODES
from distdbg.findings import FAMILIES
from distdbg.launch.plan.environment import load_preset, preset_names
from distdbg.model import FindingDoc

ROOT = Path(__file__).resolve().parent.parent
#: What the docs link to outside of their folder: a path in the repository, and the page of the site that shows it.
SHOWN_BY = {
    "README.md": "reference/commands.md",  # the links are to its table of exit codes
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "gpu_box/README.md": "simulated-gpus.md",
    "configs": "reference/presets.md",
    "configs/job.example.yaml": "reference/files.md",
    "configs/job.schema.json": "reference/files.md",
}
_COPIED = ("CONTRIBUTING.md", "CHANGELOG.md", "gpu_box/README.md")
_WIDTH = 92  # columns of a help text
_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s#]+)((?:#[^)\s]*)?)\)")


def on_files(files: Any, config: Any) -> Any:  # noqa: ANN401 -- mkdocs' types are not installed everywhere
    """The pages that are in the repository, and those that are written from the code."""
    from mkdocs.structure.files import File

    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:  # noqa: ANN401
    """A link to a file of the repository becomes one to the page that shows it."""
    source = {shown: path for path, shown in SHOWN_BY.items() if path in _COPIED}.get(page.file.src_uri)
    return with_links(markdown, page.file.src_uri, source or f"docs/{page.file.src_uri}")


def with_links(markdown: str, page: str, source: str) -> str:
    """`page` is the path in the site of a text whose links are relative to `source`, a path in the repository."""

    def replaced(match: re.Match[str]) -> str:
        target = normpath(f"{dirname(source)}/{match[1]}") if dirname(source) else normpath(match[1])
        inside = target.removeprefix("docs/") if target.startswith("docs/") else SHOWN_BY.get(target)
        return match[0] if inside is None else f"]({relpath(inside, dirname(page) or '.')}{match[2]})"

    return _LINK.sub(replaced, markdown)


def pages() -> dict[str, str]:
    """Path in the site -> Markdown."""
    written = {
        "reference/commands.md": "\n".join(_commands_page()),
        "reference/findings.md": "\n".join(_findings_page()),
        "reference/presets.md": "\n".join(_presets_page()),
        "reference/files.md": "\n".join(_files_page()),
    }
    return written | {SHOWN_BY[path]: (ROOT / path).read_text(encoding="utf-8") for path in _COPIED}


def _commands_page() -> Iterator[str]:
    yield "# Commands\n\nWritten from `--help`.\n\n## Exit codes\n\n| code | |\n|---|---|"
    yield from (f"| {code} | {_cell(meaning)} |" for code, meaning in EXIT_CODES.items())
    for path, command in _every_command(cli, "distdbg"):
        context = click.Context(command, info_name=path, terminal_width=_WIDTH)
        shown = command.get_help(context).replace("\b", "")
        yield f"\n{'#' * len(path.split())} {path}\n\n```\n{shown}\n```"


def _every_command(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from _every_command(command, f"{path} {name}")


def _findings_page() -> Iterator[str]:
    yield "# Findings\n\nWritten from the catalogue: the same as `distdbg findings ID`.\n"
    docs = documented()
    for family in FAMILIES:
        title = (family.__doc__ or "").partition(".")[0]
        yield f"## {title}\n"
        for entry in family.ENTRIES:
            yield from _finding(docs.pop(entry.id))
    yield "## Findings of known messages alone\n"
    for doc in docs.values():
        yield from _finding(doc)


def _finding(doc: FindingDoc) -> Iterator[str]:
    yield f"### {doc.id}\n\n**{doc.severity}**: {_escaped(doc.title)}\n"
    for name, text in (("Meaning", doc.meaning), ("Detected by", doc.how_seen), ("What to do", doc.remedy)):
        if text:
            yield f"**{name}.** {_escaped(text)}\n"
    if doc.source:
        yield f"Source: {_escaped(doc.source)}\n"


def _presets_page() -> Iterator[str]:
    yield "# Presets of environment variables\n\nWritten from `configs/preset-*.yaml`: the same as `distdbg env`."
    yield "[Environment variables](../environment.md) says how they are used.\n"
    for name in sorted(preset_names(), key=lambda name: (name != "default", name)):
        preset = load_preset(name)
        yield f"## {name}\n\n{_escaped(preset.summary)}\n"
        yield "| variable | why | cost | since | source |\n|---|---|---|---|---|"
        for v in preset.variables:
            cells = " | ".join(map(_cell, (v.reason, v.cost, v.since, v.source)))
            yield f"| `{v.name}={v.value}` | {cells} |"
        yield ""


def _files_page() -> Iterator[str]:
    yield "# Files and their schemas\n"
    for title, name in (
        ("A job file", "job.example.yaml"),
        ("Schema of a job file", "job.schema.json"),
        ("Schema of report.json", "report.schema.json"),
    ):
        text = (ROOT / "configs" / name).read_text(encoding="utf-8").rstrip()
        yield f"## {title}\n\n`configs/{name}`:\n\n```{Path(name).suffix[1:]}\n{text}\n```\n"


def _cell(text: str) -> str:
    return _escaped(" ".join(text.split())).replace("|", "\\|")


def _escaped(text: str) -> str:
    """Text of the code as Markdown: what is between backticks stays, an address becomes a link."""
    parts = re.split(r"(`[^`]*`|https?://[^\s,;)]+)", text)
    for i, part in enumerate(parts):
        if part.startswith("http"):
            address = part.rstrip(".")
            parts[i] = f"<{address}>{part[len(address) :]}"
        elif not part.startswith("`"):
            parts[i] = re.sub(r"([\\*_<>\[\]])", r"\\\1", part)
    return "".join(parts)
