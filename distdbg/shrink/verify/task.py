"""The task `verify`: the small model that was written, against the config of the large one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distdbg.shrink.probe.building import Anatomy, Builder, open_builder
from distdbg.shrink.probe.kinds import counting, fingerprints, same
from distdbg.shrink.probe.task import quiet
from distdbg.shrink.verify.collectives import compare_collectives
from distdbg.shrink.verify.comparing import compare
from distdbg.shrink.verify.kept import PASS, Kept, kept_of
from distdbg.shrink.verify.modalities import compare_gradients
from distdbg.shrink.verify.reloading import loads, round_trip
from distdbg.shrink.verify.running import prepared
from distdbg.shrink.verify.values import built


def run(task: dict[str, Any]) -> dict[str, str]:
    """`task`: full (folder with the source's config), small (folder that was written), stacks, entries, trust,
    everything.

    Check -> `pass`, `fail: …` or `not run, because …`.
    """
    quiet()
    full, small = open_builder(task["full"], task["trust"]), open_builder(task["small"], task["trust"])
    stacks = kept_of(task["stacks"], task["entries"])
    found = {"kinds": _kinds(full, small, stacks)}
    found |= _attempt(
        lambda: compare(on_meta(full), on_meta(small), stacks), ("ops", "activation_bytes", "gradients", "each_layer")
    )
    found |= _attempt(lambda: compare_gradients(on_meta(full), on_meta(small), stacks), ())
    found |= _attempt(lambda: {"collectives": compare_collectives(full, small, stacks)}, ("collectives",))
    found |= _attempt(lambda: loads(task["small"], small, task["trust"]), ("names_and_shapes",))
    found |= _attempt(lambda: round_trip(task["small"], small, task["trust"], task["everything"]), ("save_and_reload",))
    return found


def _attempt(check: Callable[[], dict[str, str]], names: tuple[str, ...]) -> dict[str, str]:
    """A check that cannot be made says so; it does not pass and does not fail."""
    try:
        return check()
    except Exception as error:
        why = f"not run, because {type(error).__name__}: {' '.join(str(error).split())[:160]}"
        return dict.fromkeys(names, why)


def on_meta(builder: Builder) -> Any:
    """On meta, whatever type either config names: what is compared is what the layers do."""
    model: Any = built(lambda: prepared(builder.model(builder.full)))
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and not parameter.is_meta:  # made by a constructor that heeds no default device
                module._parameters[name] = type(parameter)(parameter.to("meta"))
    for parameter in model.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    return model


def _kinds(full: Builder, small: Builder, stacks: list[Kept]) -> str:
    a, b = full.anatomy(full.full), small.anatomy(small.full)
    assert isinstance(a, Anatomy)
    assert isinstance(b, Anatomy)
    for stack in stacks:
        if b.lists.get(stack.path) != len(stack.kept):
            return f"fail: {stack.path} has {b.lists.get(stack.path)} layers, not {len(stack.kept)}"
        before, after = fingerprints(a, stack.path), fingerprints(b, stack.path)
        numbers = counting(before)
        for new, old in enumerate(stack.kept):
            off = same(before, after[new], numbers, stack.kept, new)
            if off:
                return (
                    f"fail: {stack.path}.{new} is not what layer {old} was: {'.'.join(p for p in off[0] if p)} differs"
                )
    return PASS
