"""`distdbg findings` (housekeeping): list every finding, and explain what each one means."""

from __future__ import annotations

import difflib
import json
import textwrap
from dataclasses import asdict

import click

from distdbg.cli.epilog import examples, exits
from distdbg.cli.json_answer import json_option
from distdbg.errors import UsageError
from distdbg.model import FindingDoc


@exits({0: "done"})
@examples("distdbg findings", "distdbg findings collective-not-joined")
@click.command("findings")
@click.argument("finding_id", metavar="[ID]", required=False)
@json_option("Print JSON: a list, or one object with ID.")
def command(finding_id: str | None, as_json: bool) -> None:
    """List all findings; with ID, what it means, how it is detected, what to do and its source."""
    from distdbg.diagnosis.catalogue import documented

    docs = documented()
    if finding_id is None:
        _list(docs, as_json)
        return
    doc = docs.get(finding_id.strip().lower().replace("_", "-"))
    if doc is None:
        raise UsageError(f"no finding is called {finding_id!r}", _nearest(finding_id, docs))
    if as_json:
        click.echo(json.dumps(asdict(doc), indent=1))
    else:
        _one(doc)


def _list(docs: dict[str, FindingDoc], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([asdict(doc) for doc in docs.values()], indent=1))
        return
    width = max(map(len, docs))
    for doc in docs.values():
        click.echo(f"{doc.id:<{width}}  {doc.severity:<7}  {doc.title}")


def _one(doc: FindingDoc) -> None:
    from distdbg.evidence.logs.messages import known_messages

    click.echo(f"{click.style(doc.id, bold=True)} ({doc.severity}): {doc.title}\n")
    for name, text in (("means", doc.meaning), ("seen", doc.how_seen), ("do", doc.remedy), ("source", doc.source)):
        if text:
            lines = textwrap.wrap(text, 88, break_long_words=False, break_on_hyphens=False)
            click.echo("\n".join(f"{name if i == 0 else '':<8}{line}" for i, line in enumerate(lines)))
    kinds = [known for known in known_messages() if known.finding == doc.id]
    if kinds:
        click.echo("\nrecognised by their message:")
        for known in kinds:
            versions = f" ({known.versions})" if known.versions else ""
            click.echo(f"  {known.id:<26}{known.symptom}{versions}")


def _nearest(wrong: str, docs: dict[str, FindingDoc]) -> str:
    near = difflib.get_close_matches(wrong.lower().replace("_", "-"), docs, 3, 0.5)
    near = near or [name for name in docs if wrong.lower() in name][:3]
    if near:
        return f"Did you mean {' or '.join(near)}? `distdbg findings` lists them all."
    return "`distdbg findings` lists them all."
