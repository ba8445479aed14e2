"""Run the small model for real: forward, backward and `generate` with its own default arguments, on small inputs.

Its outputs are compared with those of the full model whose other layers are identities. If the small model raises, the
full one is run with the weights of a kept layer in each layer: what raises there, too, is not the small model's fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import psutil

from distdbg.shrink.checkpoint.config_leaves import changed
from distdbg.shrink.probe.building import Builder, brief, in_short
from distdbg.shrink.probe.narrowing import less_width
from distdbg.shrink.verify.full_model import Cuts, FullModel, WatchedLayers, broken_identity
from distdbg.shrink.verify.inputs import inputs_for
from distdbg.shrink.verify.kept import PASS, KeptStack, has_passed
from distdbg.shrink.verify.measuring import as_the_weights, turn_off_dropout
from distdbg.shrink.verify.modalities import inputs_of, modalities
from distdbg.shrink.verify.other_numbers import OtherNumber, other_numbers, substituted
from distdbg.shrink.verify.reloading import load_model, weights_size
from distdbg.shrink.verify.samples import MAIN
from distdbg.shrink.verify.values import tensors_in

CHECKS = ("runs", "outputs", "generate")
_TOKENS = 4
#: weights, their gradients, and what a pass keeps; twice, since a full model that is run may add a layer of each kind
_TIMES_IN_MEMORY = 4
#: width of the model that is run in place of one that does not fit in memory
_NARROWER = 0.25
#: relative to the largest value of an output: the same kernels get the same numbers, so this is for threads that add up
#: in another order
_TOLERANCE = {"torch.float32": 1e-3, "torch.float64": 1e-6}
_TOLERANCE_OF_HALF = 2e-2


class FullModelNotBuiltError(Exception):
    """The full model cannot be built, so that nothing is known of what it does."""


class RealRun:
    """The small model with its weights, and the full model in its place."""

    def __init__(self, small: Any, full: Builder, stacks: Sequence[KeptStack], cuts: Cuts) -> None:
        self.small = small.eval()
        self._full, self._stacks, self._cuts = full, stacks, cuts
        self._made: FullModel | None = None

    def checks(self, *, step: bool) -> dict[str, str]:
        """Check -> what it says. step: `smoke_test`, a step of an optimizer after which all numbers are finite."""
        found: dict[str, dict[str, str]] = {"runs": {}, "outputs": {}}
        reached: set[str] = set()
        text: dict[str, Any] | None = None
        main = getattr(self.small, "main_input_name", "input_ids")
        for modality in ("", *(m for m in modalities(self.small) if main not in MAIN[m])):
            try:
                inputs = inputs_of(self.small, modality) if modality else inputs_for(self.small)
                inputs = as_the_weights(self.small, _varied(inputs))
            except Exception as error:
                found["runs"][modality] = f"not run, because of {in_short(error)}"
                continue
            text = inputs if text is None else text
            said = found["runs"][modality] = self._runs(inputs)
            is_run = said == PASS
            found["outputs"][modality] = (
                self._outputs(inputs, reached) if is_run else "not run, because the model does not run"
            )
        result = {check: _summary(said) for check, said in found.items()}
        silent = [stack.path for stack in self._stacks if stack.path not in reached]
        if has_passed(result["outputs"]) and silent:
            result["outputs"] += f"; no input reaches {', '.join(silent)}"
        if text is not None and getattr(self.small, "can_generate", bool)():
            result["generate"] = self._generates(text)
        if step:
            result["smoke_test"] = _take_a_step(self.small, text, result | {"runs": found["runs"].get("", "")})
        return result

    def _whole(self) -> FullModel:
        """Raises FullModelNotBuiltError."""
        if self._made is None:
            try:
                self._made = FullModel(self._full, self.small, self._stacks, self._cuts)
            except Exception as error:
                raise FullModelNotBuiltError(f"the full model cannot be built: {in_short(error)}") from error
        return self._made

    def _runs(self, inputs: dict[str, Any]) -> str:
        return self._as_the_full_model("forward", lambda model: forward(model, inputs)) or (
            self._as_the_full_model("backward", lambda model: _backward(model, inputs)) or PASS
        )

    def _generates(self, inputs: dict[str, Any]) -> str:
        said = self._as_the_full_model("generate", lambda model: _generate(model, inputs))
        return said or f"{PASS}; {_TOKENS} tokens"

    def _as_the_full_model(self, what: str, call: Callable[[Any], Any]) -> str:
        """Empty if the small model does it; else `fail` if the full one does, or why that is not known."""
        try:
            call(self.small)
        except Exception as error:
            try:
                call(self._whole().model)
            except FullModelNotBuiltError as unbuilt:
                return f"not run, because {what} raises {in_short(error)}, and {unbuilt}"
            except Exception as also:
                return f"not run, because the full model does not do {what}, either: {in_short(also)}"
            return f"fail: {what} with the model's own defaults raises {brief(error)}; the full model's does not"
        return ""

    def _outputs(self, inputs: dict[str, Any], reached: set[str]) -> str:
        """reached: gets the paths of the stacks whose layers ran."""
        moved = [s.path for s in self._stacks if list(s.kept) != sorted(set(s.kept))]
        if moved:
            return f"not run, because the layers of {moved[0]} are in another order, or there several times"
        watch, there = WatchedLayers(), WatchedLayers()
        with watch.watching(self.small, {s.path: range(len(s.kept)) for s in self._stacks}):
            here = forward(self.small, inputs)
        try:
            full = self._whole()
            with (
                full.with_identities(watch.forms) as model,
                there.watching(model, {s.path: range(s.layers) for s in self._stacks}),
            ):
                expected = forward(model, inputs)
        except FullModelNotBuiltError as error:
            return f"not run, because {error}"
        except Exception as error:
            return f"not run, because with identities the full model raises {in_short(error)}"
        reached.update(watch.calls)
        off = _deviation(dict(_named(expected)), dict(_named(here)))
        if off is None:
            return "not run, because no output of the small model has the form of the full model's"
        if not off:
            return PASS
        return self._explained(off, inputs, here, expected, there)

    def _explained(self, off: str, inputs: dict[str, Any], here: Any, expected: Any, there: WatchedLayers) -> str:
        """What a deviation means."""
        for stack in self._stacks:
            if why := broken_identity(there.calls.get(stack.path, ()), stack):
                return f"not run, because {why}"
        if there.problems:
            return f"not run, because {there.problems[0]}"
        if _deviation(dict(_named(here)), dict(_named(forward(self.small, inputs, seed=1)))):
            return "not run, because the outputs are drawn by chance"
        numbers = list(other_numbers(self._whole().model, self.small, self._stacks))
        counts, placed = ([n for n in numbers if n.is_placed == is_placed] for is_placed in (False, True))
        tried = [group for group in (counts, placed, [*placed, *counts]) if group]
        cause = next((group for group in tried if self._gives(expected, inputs, group)), [])
        found = "; ".join([f"{off} from those of the full model whose other layers are identities",
                           *(number.words for number in cause[:1])])  # fmt: skip
        # what follows from the number of layers is no layer's own: no copy with fewer layers can have it
        return f"warning: {found}" if cause and cause is counts else f"fail: {found}"

    def _gives(self, expected: Any, inputs: dict[str, Any], numbers: Sequence[OtherNumber]) -> bool:
        """Whether the small model's outputs are the expected ones with the full model's numbers in its place."""
        with substituted(numbers), suppress(Exception):  # a config with the number of layers that are not there
            return not _deviation(dict(_named(expected)), dict(_named(forward(self.small, inputs))))
        return False


def forward(model: Any, inputs: Mapping[str, Any], seed: int = 0) -> Any:
    import torch

    torch.manual_seed(seed)
    with torch.no_grad():
        return model.eval()(**inputs)


def _backward(model: Any, inputs: Mapping[str, Any]) -> None:
    import torch

    torch.manual_seed(0)
    turn_off_dropout(model)
    model.zero_grad(set_to_none=True)
    outputs = [t for t in tensors_in(model.train()(**inputs)) if t.requires_grad]
    if not outputs:
        raise LookupError("no output has a gradient")
    sum(t.float().square().mean() for t in outputs).backward()


def _generate(model: Any, inputs: Mapping[str, Any]) -> None:
    import torch

    torch.manual_seed(0)
    given = {name: value for name, value in inputs.items() if name != "decoder_input_ids"}
    model.eval().generate(**given, max_new_tokens=_TOKENS)


def _varied(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Pixels and samples that are not all alike, and no argument that the model has a default for."""
    import torch

    torch.manual_seed(0)
    return {
        name: value * (0.5 + torch.rand(value.shape))
        if isinstance(value, torch.Tensor) and value.is_floating_point()
        else value
        for name, value in inputs.items()
        if name != "use_cache"
    }


def _summary(said: Mapping[str, str]) -> str:
    """Of all modalities ("": the model's main input): the worst, or a pass with the first that was not run."""
    for begin in ("fail", "warning"):
        if found := [words for words in said.values() if words.startswith(begin)]:
            return found[0]
    rest = [(modality, words) for modality, words in said.items() if not has_passed(words)]
    if len(rest) == len(said):
        return rest[0][1] if rest else "not run, because no input is known"
    return f"{PASS}; with {rest[0][0] or 'text'}: {rest[0][1]}" if rest else PASS


def _named(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The tensors of an output by name; those of a list by their number and the list's length: another length is
    another list, such as one with an entry a layer."""
    import torch

    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _named(inner, f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _named(inner, f"{name}.{number} of {len(value)}")


def _deviation(full: Mapping[str, Any], small: Mapping[str, Any]) -> str | None:
    """The first output that differs, in words; empty if none does, None if nothing can be compared."""
    import torch

    shared = [name for name, value in full.items() if name in small and small[name].shape == value.shape]
    for name in shared:
        a, b = full[name], small[name]
        if not a.is_floating_point():
            if not torch.equal(a, b):
                return f"{name.lstrip('.')} differs"
            continue
        tolerance = _TOLERANCE.get(str(a.dtype), _TOLERANCE_OF_HALF)
        a, b = a.double(), b.double()
        largest = float(a[a.isfinite()].abs().max()) if bool(a.isfinite().any()) else 0.0
        if not torch.allclose(a, b, rtol=0.0, atol=tolerance * largest, equal_nan=True):
            most = float((a - b).abs().nan_to_num().max())
            return f"{name.lstrip('.')} differs by up to {most:.3g} (of {largest:.3g})"
    return "" if shared else None


def _take_a_step(model: Any, inputs: Mapping[str, Any] | None, said: Mapping[str, str]) -> str:
    """`smoke_test`: whether outputs, and parameters after a step of SGD, are finite."""
    import torch

    bad = next((words for words in said.values() if words.startswith("fail")), None)
    if bad or inputs is None or said["runs"] != PASS:
        return bad or said["runs"]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    _backward(model, inputs)
    optimizer.step()
    odd = [name for name, value in _named(forward(model, inputs)) if not bool(value.isfinite().all())]
    odd += [name for name, p in model.named_parameters() if not bool(p.isfinite().all())]
    if odd:
        return f"fail: {odd[0].lstrip('.')} is not finite after a step of SGD"
    generated = said.get("generate", "")
    done = f"{PASS}; forward, backward and a step of SGD gave finite numbers"
    return f"{done}; generate gave {_TOKENS} tokens" if generated.startswith(PASS) else done


def run_for_real(task: Mapping[str, Any], full: Builder, small: Builder, stacks: Sequence[KeptStack]) -> dict[str, str]:
    """`task`: as of `verify`. If the model does not fit in memory, one with the same structure and less width runs."""
    size = weights_size(task["small"])
    if size * _TIMES_IN_MEMORY <= psutil.virtual_memory().available:
        model, _ = load_model(task["small"], small, task["trust"])
        return RealRun(model, full, stacks, task["cuts"]).checks(step=task["smoke"])
    edits = less_width(Builder(full.config(full.full), full.model_class, full.trust), _NARROWER).edits
    narrow = [Builder(b.config(changed(b.full, edits)), b.model_class, b.trust) for b in (full, small)]
    found = RealRun(narrow[1].with_random_weights(), narrow[0], stacks, task["cuts"]).checks(step=task["smoke"])
    note = f"of {_NARROWER:g} of the width, with random weights: {size / 1e9:.1f} GB are too large for this machine"
    return {check: f"{said}; {note}" if has_passed(said) else said for check, said in found.items()}
