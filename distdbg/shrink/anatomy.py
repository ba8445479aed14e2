"""Print a model's anatomy: stacks, the kinds of their layers, the config leaves that count them, their sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from distdbg.model import fold_ranks

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def anatomy_lines(probe: Mapping[str, Any], asked: str = "--layers auto", width: int = 100) -> Iterator[str]:
    """Lines for a terminal; sizes are of one layer, of the type that the config names or float32. `asked`: the options
    that choose the layers."""
    yield f"{probe['model_type']} ({probe['model_class']})"
    for stack in probe["stacks"]:
        yield ""
        yield f"{stack['path']}: {stack['layers']} layers, counted by {stack['driven_by']}"
        for number, kind in enumerate(stack["kinds"]):
            yield (
                f"  {_letter(number)}  {kind['class']:<28} {len(kind['layers']):>4} x {_count(kind['parameters']):>7} "
                f"parameters {_count(kind['bytes']):>7}B   layers {_ranges(kind['layers'])}"
            )
            if kind.get("unlike"):
                yield f"     unlike A: {kind['unlike']}"
        yield from (f"  {row}" for row in _picture(stack, width - 4))
        yield f"  {asked} keeps {', '.join(map(str, stack['kept']))}"
    for warning in probe["warnings"]:
        yield f"warning: {warning}"


def _picture(stack: Mapping[str, Any], width: int) -> Iterator[str]:
    """A letter for each layer's kind, and a mark below those that are kept."""
    of = {layer: number for number, kind in enumerate(stack["kinds"]) for layer in kind["layers"]}
    for start in range(0, stack["layers"], width):
        row = range(start, min(start + width, stack["layers"]))
        yield "".join(_letter(of[i]) for i in row)
        marks = "".join("^" if i in stack["kept"] else " " for i in row).rstrip()
        if marks:
            yield marks


def _letter(number: int) -> str:
    return _LETTERS[number] if number < len(_LETTERS) else "?"


def _ranges(numbers: list[int]) -> str:
    """0-2, 5, 8-9; long lists end with …"""
    found = fold_ranks(numbers).split(",")
    return ", ".join(found[:8]) + (", …" if len(found) > 8 else "")


def _count(number: float) -> str:
    for unit in ("", "k", "M", "G"):
        if number < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g}T"
