"""The tasks `verify`, which checks the written small model against the large one's config, and `costs`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distdbg.shrink.checkpoint.config_file import CONFIG
from distdbg.shrink.probe.building import Builder, in_short, open_builder
from distdbg.shrink.probe.kinds import counting, fingerprints, same
from distdbg.shrink.probe.task import quiet
from distdbg.shrink.verify import collectives
from distdbg.shrink.verify.aside import ChecksAside
from distdbg.shrink.verify.collectives import compare_collectives
from distdbg.shrink.verify.comparing import compare
from distdbg.shrink.verify.inputs import inputs_for
from distdbg.shrink.verify.kept import PASS, KeptStack, has_passed, kept_of
from distdbg.shrink.verify.measuring import measure
from distdbg.shrink.verify.modalities import compare_gradients, modalities
from distdbg.shrink.verify.names import compare_names, lacking
from distdbg.shrink.verify.processing import has_processor, try_processor
from distdbg.shrink.verify.reloading import loads, round_trip
from distdbg.shrink.verify.running import CHECKS, run_for_real
from distdbg.shrink.verify.tokenizing import compare_tokenizers
from distdbg.shrink.verify.values import runnable


def begin_layers(task: dict[str, Any]) -> None:
    """Begin with the checks of the layers, which need no weights; `verify` of the same folders has their results.

    `task`: full (folder with the source's config), small (folder with the small one's), stacks, entries, trust.
    """
    _begun[_name(task)] = _LayerChecks(task)


def verify(task: dict[str, Any]) -> dict[str, str]:
    """`task`: as of `begin_layers`, and everything, tied, origins, sources (see `compare_names`), tokens (the old id of
    each new one; none: all stayed), rows (how many there were), cuts (see `FullModel`), smoke (take a step, too). The
    small model's weights are in its folder.

    Check -> `pass`, `warning: …`, `fail: …` or `not run, because …`.
    """
    checks = _begun.pop(_name(task), None) or _LayerChecks(task)
    _begun.clear()
    found = checks.found | _of_the_files(task, checks.full, checks.small, checks.stacks) | checks.collectives()
    wanted = (*CHECKS, "smoke_test") if task["smoke"] else CHECKS
    found |= _attempt(lambda: run_for_real(task, checks.full, checks.small, checks.stacks), wanted)
    return {check: found[check] for check in sorted(found, key=_place)}


class _LayerChecks:
    """Checks of the layers: one of them goes on in another process."""

    def __init__(self, task: dict[str, Any]) -> None:
        quiet()
        self.full, self.small = (open_builder(task[folder], task["trust"]) for folder in ("full", "small"))
        self.stacks = kept_of(task["stacks"], task["entries"])
        full, small, stacks = self.full, self.small, self.stacks
        self._beside = ChecksAside(lambda: self._compared(sampled=True))
        self.found = {"kinds": _kinds(full, small, stacks)}
        self.found |= _attempt(
            lambda: compare(on_meta(full), on_meta(small), stacks),
            ("ops", "activation_bytes", "gradients", "each_layer"),
        )
        self._alike = all(map(has_passed, self.found.values()))
        if any(modalities(full.bare)):
            self.found |= _attempt(lambda: compare_gradients(on_meta(full), on_meta(small), stacks), ())

    def collectives(self) -> dict[str, str]:
        """Of some layers in the place of all, where one stands for another."""
        found = self._beside.result()
        return found if self._alike else self._compared(sampled=False)

    def _compared(self, *, sampled: bool) -> dict[str, str]:
        def check() -> dict[str, str]:
            return {"collectives": compare_collectives(self.full, self.small, self.stacks, sampled=sampled)}

        return _attempt(check, ("collectives",))


#: what `verify` has not asked for yet: (config files, with their content) -> the checks
_begun: dict[Any, _LayerChecks] = {}


def _name(task: dict[str, Any]) -> Any:
    return tuple((folder, Path(folder, CONFIG).read_bytes()) for folder in (task["full"], task["small"]))


def _place(check: str) -> int:
    """Checks are shown in the order of their table in the docs."""
    return next((at for at, begin in enumerate(_ORDER) if check.startswith(begin)), len(_ORDER))


#: `gradients` are also those with an image, a video or a sound
_ORDER = ("kinds", "ops", "activation_bytes", "gradients", "each_layer", "outputs", "runs", "generate", "stored_names",
          "collectives", "names_and_shapes", "save_and_reload", "tokenizer", "processor", "smoke_test")  # fmt: skip


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


def on_meta(builder: Builder) -> Any:
    """On meta, with any type that the configs name: the comparison is of what the layers do."""
    model = runnable(builder, builder.full)
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and not parameter.is_meta:  # made by a constructor that heeds no default device
                module._parameters[name] = type(parameter)(parameter.to("meta"))
    for parameter in model.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    return model


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


def costs(task: dict[str, Any]) -> dict[str, Any]:
    """What the small model costs, in all and by layer, measured on the meta device.

    `task`: small (folder), stacks, trust, tokens. Cost -> [total, {layer path: cost}]; tied weights count once.

    Collectives are left out where the model does not run under FSDP2.
    """
    quiet()
    builder = open_builder(task["small"], task["trust"])
    model = on_meta(builder)
    stacks = [(path, len(s["kept"])) for s in task["stacks"] for path in (s["path"], *s["also"])]
    layers = [f"{path}.{i}" for path, count in stacks for i in range(count)]
    found = measure(model, model, inputs_for(model, task["tokens"]), layers)
    parameters: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        parameters[next((p for p in layers if name.startswith(f"{p}.")), "")] += parameter.numel()
    kept = kept_of(task["stacks"], {})
    try:
        cost = collectives.costs(builder, kept)
    except Exception:
        cost = {}
    return cost | {
        "parameters": [sum(parameters.values()), parameters],
        "flops": [sum(found.flops.values()), found.flops],
        "activation_bytes": [sum(found.saved.values()), found.saved],
    }
