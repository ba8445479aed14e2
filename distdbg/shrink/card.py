"""Write the model card of a small model: what was cut, and how it was verified. The source's metadata block stays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from distdbg.shrink.vocabulary.token_ids import is_token_id

CARD = "README.md"
_FENCE = "---"


def card(made: Mapping[str, Any], source: str, there: str) -> str:
    """`made`: what shrink.json says. `source`: what the model was made of. `there`: the source's own card, if any."""
    lines = [*_metadata(there), f"# A small copy of {source}", "", *_what(made), ""]
    lines += ["## What was cut", "", *(f"- {line}" for line in _cuts(made)), ""]
    if made["warnings"]:
        lines += ["## Warnings", "", *(f"- {warning}" for warning in made["warnings"]), ""]
    lines += ["## How it was verified", ""]
    checks = [f"| {check} | {said.replace('|', '/')} |" for check, said in made["verified"].items()]
    lines += ["| check | result |", "|---|---|", *checks] if checks else ["It was not verified (`--no-verify`)."]
    return "\n".join([*lines, "", "Made by `distdbg shrink-model`; `shrink.json` has all of it.", ""])


def _metadata(there: str) -> list[str]:
    """The block between two lines of dashes at the beginning of a card: licence, language, tags."""
    lines = there.splitlines()
    if not lines or lines[0].strip() != _FENCE:
        return []
    ends = [at for at, line in enumerate(lines[1:], 1) if line.strip() == _FENCE]
    return [*lines[: ends[0] + 1], ""] if ends else []


def _what(made: Mapping[str, Any]) -> list[str]:
    if made["weights"] == "random":
        return ["Its weights are random: it is for tests of code, and gives no useful output."]
    return ["Its weights are the source's, of some layers only: it is for finding faults, and gives no useful output."]


def _cuts(made: Mapping[str, Any]) -> Iterator[str]:
    for stack in made["stacks"]:
        kept = ", ".join(map(str, stack["kept"]))
        yield f"`{stack['path']}`: {len(stack['kept'])} of {stack['layers']} layers are kept ({kept})"
    for one in made["narrowed"]:
        fields = ", ".join(".".join(map(str, path)) for path, _ in one["edits"] if not is_token_id(tuple(path)))
        yield f"{one['axis']}: {one['to']} of {one['from']} (`{fields}`)"
