"""The task `verify`: check the written small model against the large one's config."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distdbg.shrink.probe.building import Builder, in_short, open_builder
from distdbg.shrink.probe.kinds import counting, fingerprints, same
from distdbg.shrink.probe.task import quiet
from distdbg.shrink.verify.kept import PASS, KeptStack, kept_of
from distdbg.shrink.verify.names import compare_names, lacking
from distdbg.shrink.verify.processing import has_processor, try_processor
from distdbg.shrink.verify.reloading import loads, round_trip
from distdbg.shrink.verify.running import CHECKS, run_for_real
from distdbg.shrink.verify.tokenizing import compare_tokenizers


def verify(task: dict[str, Any]) -> dict[str, str]:
    """`task`: full (folder with the source's config), small (folder of the small model), stacks, entries, trust,
    everything, tied, origins, sources (see `compare_names`), tokens (the old id of each new one; none: all stayed),
    rows (how many there were), cuts (see `FullModel`), smoke (take a step, too).

    Check -> `pass`, `warning: …`, `fail: …` or `not run, because …`.
    """
    quiet()
    full, small = (open_builder(task[folder], task["trust"]) for folder in ("full", "small"))
    stacks = kept_of(task["stacks"], task["entries"])
    found = {"kinds": _kinds(full, small, stacks)} | _of_the_files(task, full, small, stacks)
    wanted = (*CHECKS, "smoke_test") if task["smoke"] else CHECKS
    found |= _attempt(lambda: run_for_real(task, full, small, stacks), wanted)
    return {check: found[check] for check in sorted(found, key=_place)}


def _place(check: str) -> int:
    """Checks are shown in the order of their table in the docs."""
    return next((at for at, begin in enumerate(_ORDER) if check.startswith(begin)), len(_ORDER))


#: `gradients` are also those with an image, a video or a sound
_ORDER = ("kinds", "ops", "activation_bytes", "gradients", "each_layer", "outputs", "runs", "generate", "stored_names",
          "names_and_shapes", "save_and_reload", "tokenizer", "processor", "smoke_test")  # fmt: skip


def _of_the_files(task: dict[str, Any], full: Builder, small: Builder, stacks: list[KeptStack]) -> dict[str, str]:
    """What needs no measurement of layers."""
    found: dict[str, str] = {}
    if task["origins"]:
        found |= _attempt(lambda: {"stored_names": compare_names(full, small, stacks, task)}, ("stored_names",))
    if task["tokens"]:
        found |= _attempt(
            lambda: {
                "tokenizer": compare_tokenizers(
                    task["full"], task["small"], task["tokens"], task["rows"], task["trust"]
                )
            },
            ("tokenizer",),
        )
    if has_processor(task["small"]):
        found |= _attempt(lambda: {"processor": try_processor(task["small"], task["trust"])}, ("processor",))
    absent = lacking(full, stacks, task["sources"])
    found |= _attempt(lambda: loads(task["small"], small, task["trust"], absent), ("names_and_shapes",))
    return found | _attempt(
        lambda: round_trip(task["small"], small, task["trust"], task["everything"]), ("save_and_reload",)
    )


def _attempt(check: Callable[[], dict[str, str]], names: tuple[str, ...]) -> dict[str, str]:
    """A check that cannot be made says so; it does not pass and does not fail."""
    try:
        return check()
    except Exception as error:
        return dict.fromkeys(names, f"not run, because of {in_short(error)}")


def _kinds(full: Builder, small: Builder, stacks: list[KeptStack]) -> str:
    a, b = full.whole, small.whole
    for stack in stacks:
        if b.lists.get(stack.path) != len(stack.kept):
            return f"fail: {stack.path} has {b.lists.get(stack.path)} layers, not {len(stack.kept)}"
        before, after = fingerprints(a, stack.path), fingerprints(b, stack.path)
        numbers = counting(before)
        for new, old in enumerate(stack.kept):
            off = same(before, after[new], numbers, stack.kept, new)
            if off:
                what = ".".join(part for part in off[0] if part)
                return f"fail: {stack.path}.{new} is not what layer {old} was: {what} differs"
    return PASS
