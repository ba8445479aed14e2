"""Run the small model for real: forward, backward and `generate` with its own default arguments, on small inputs.

Its outputs are compared with those of the full model whose other layers are identities. If the small model raises, the
full one is run with the weights of a kept layer in each layer: what raises there, too, is not the small model's fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil

from distdbg.shrink.checkpoint.config_leaves import changed
from distdbg.shrink.probe.building import Builder, brief, in_short
from distdbg.shrink.probe.narrowing import less_width
from distdbg.shrink.verify.full_model import Cuts, FullModel, WatchedLayers, broken_identity
from distdbg.shrink.verify.inputs import as_the_weights, inputs_for
from distdbg.shrink.verify.kept import PASS, KeptStack, has_passed
from distdbg.shrink.verify.layers import LAYER_CHECKS, RecordedCalls, compare_layers
from distdbg.shrink.verify.measuring import tensors_in
from distdbg.shrink.verify.modalities import inputs_of, modalities
from distdbg.shrink.verify.other_numbers import OtherNumber, other_numbers, substituted
from distdbg.shrink.verify.reloading import is_quantized, load_model, weights_size
from distdbg.shrink.verify.samples import MAIN

CHECKS = (*LAYER_CHECKS, "runs", "outputs", "generate")
#: names of outputs: `image_outputs` (transformers from 5.24 on), `image_hidden_states`
_OF_A_TOWER = re.compile(r"(image|video|audio|vision|speech)_(outputs?|hidden_states|features)")
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


@dataclass(frozen=True)
class _Comparison:
    """What the checks `outputs` and `gradients_…` say of one pass."""

    outputs: str
    gradients: str

    @classmethod
    def without(cls, why: str) -> _Comparison:
        return cls(f"not run, because {why}", f"not run, because {why}")


class RealRun:
    """The small model with its weights, and the full model in its place."""

    def __init__(self, small: Any, full: Builder, stacks: Sequence[KeptStack], cuts: Cuts) -> None:
        self.small = small.eval()
        self._full, self._stacks, self._cuts = full, stacks, cuts
        self._made: FullModel | None = None
        self._calls = RecordedCalls()
        self._paths = [f"{stack.path}.{number}" for stack in stacks for number in range(len(stack.kept))]

    def checks(self, *, step: bool) -> dict[str, str]:
        """Check -> what it says. step: `smoke_test`, a step of an optimizer after which all numbers are finite."""
        result: dict[str, str] = {}
        runs: dict[str, str] = {}
        outputs: dict[str, str] = {}
        reached: set[str] = set()
        text: dict[str, Any] | None = None
        main = getattr(self.small, "main_input_name", "input_ids")
        kinds = list(modalities(self.small))
        for modality in ("", *(kind for kind in kinds if main not in MAIN[kind])):
            try:
                given = inputs_of(self.small, modality) if modality else inputs_for(self.small)
                inputs = as_the_weights(self.small, _varied(given))
            except Exception as error:
                runs[modality] = self._without_inputs(modality, error)
                result[f"gradients_{modality}"] = runs[modality]
                continue
            text = inputs if text is None else text
            runs[modality] = self._runs(inputs)
            comparison = _Comparison.without("the model does not run")
            if runs[modality] == PASS:
                comparison = self._compared_with_identities(inputs, reached)
            outputs[modality], result[f"gradients_{modality}"] = comparison.outputs, comparison.gradients
            self._calls.record(self.small, self.small, as_the_weights(self.small, given), self._paths)
        of_the_main = result.pop("gradients_")
        result |= {f"gradients_{kind}": of_the_main for kind in kinds if main in MAIN[kind]}
        result |= self._compared_layer_by_layer()
        result |= {"runs": _summary(runs), "outputs": _summary(outputs)}
        silent = [stack.path for stack in self._stacks if stack.path not in reached]
        if has_passed(result["outputs"]) and silent:
            result["outputs"] += f"; no input reaches {', '.join(silent)}"
        if text is not None and getattr(self.small, "can_generate", bool)():
            result["generate"] = self._generates(text)
        if step:
            result["smoke_test"] = _take_a_step(self.small, text, result | {"runs": runs.get("", "")})
        return result

    def _without_inputs(self, modality: str, error: Exception) -> str:
        """The small model runs with no image (video, sound) that is known: `fail` if the full one does."""
        with suppress(Exception):
            inputs_of(self._whole().model.eval(), modality)
            return f"fail: with {modality} the small model raises {brief(error)}; the full model does not"
        return f"not run, because of {in_short(error)}"

    def _compared_layer_by_layer(self) -> dict[str, str]:
        """A stack that no input of the model reaches gets what its part of the model takes."""
        for stack in self._stacks:
            owner = _owner(self.small, stack.path)
            if owner is not None and f"{stack.path}.0" not in self._calls:
                with suppress(Exception):
                    self._calls.record(self.small, owner, as_the_weights(owner, inputs_for(owner)), self._paths)
        try:
            full = self._whole().model
        except FullModelNotBuiltError as error:
            return dict.fromkeys(LAYER_CHECKS, f"not run, because {error}")
        return compare_layers(full, self.small, self._stacks, self._calls)

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

    def _compared_with_identities(self, inputs: dict[str, Any], reached: set[str]) -> _Comparison:
        """reached: gets the paths of the stacks whose layers ran."""
        watch, there = WatchedLayers(), WatchedLayers()
        small_gradients = _gradients(self.small, inputs)  # first: it changes statistics of batches, which are shared
        with watch.watching(self.small, {s.path: range(len(s.kept)) for s in self._stacks}):
            here = forward(self.small, inputs)
        try:
            full = self._whole()
            with (
                full.with_identities(watch.forms) as model,
                there.watching(model, {s.path: range(s.layers) for s in self._stacks}),
            ):
                expected = forward(model, inputs)
                full_gradients = _gradients(model, inputs)
        except FullModelNotBuiltError as error:
            return _Comparison.without(str(error))
        except Exception as error:
            return _Comparison.without(f"with identities the full model raises {in_short(error)}")
        gradients = _compare_gradients(full.counterparts(full_gradients), small_gradients)
        moved = [s.path for s in self._stacks if list(s.kept) != sorted(set(s.kept))]
        if moved:
            why = f"the layers of {moved[0]} are in another order, or there several times"
            return _Comparison(f"not run, because {why}", gradients)
        reached.update(watch.calls)
        return _Comparison(self._outputs(inputs, here, expected, there), gradients)

    def _outputs(self, inputs: dict[str, Any], here: Any, expected: Any, there: WatchedLayers) -> str:
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
    outputs = _results(model.train()(**inputs))
    if not outputs:
        raise LookupError("no output has a gradient")
    sum(t.float().square().mean() for t in outputs).backward()


def _gradients(model: Any, inputs: Mapping[str, Any]) -> set[str]:
    """Names of the parameters that get a gradient."""
    _backward(model, inputs)
    named = model.named_parameters(remove_duplicate=False)
    found = {name for name, parameter in named if parameter.grad is not None}
    model.zero_grad(set_to_none=True)
    return found


def _compare_gradients(expected: set[str], got: set[str]) -> str:
    """Of parameters of the small model: those that get a gradient in the full one, and in it."""
    for name in sorted(expected ^ got):
        return f"fail: {name} gets {'a' if name in got else 'no'} gradient, unlike in the full model"
    return PASS


def _results(output: Any) -> list[Any]:
    """Tensors that a loss may be made of. What a tower gave, which a model may give beside them, is none: it would give
    the tower its gradients where nothing of it reaches the text."""
    aside = [name for name in output if _OF_A_TOWER.fullmatch(name)] if isinstance(output, Mapping) else []
    rest = {name: value for name, value in output.items() if name not in aside} if aside else output
    found = [tensor for tensor in tensors_in(rest) if tensor.requires_grad]
    return found or [tensor for tensor in tensors_in(output) if tensor.requires_grad]


def turn_off_dropout(model: Any) -> None:
    """Rates that rise with the layer's number are no difference in kind."""
    holders = [h for m in model.modules() for h in (m, getattr(m, "config", None)) if h is not None]
    for holder in holders:
        for name, value in list(vars(holder).items()):
            if isinstance(value, float) and (name in ("p", "drop_prob") or name.endswith("layerdrop")):
                setattr(holder, name, 0.0)
            if isinstance(value, float) and name.startswith("mask_") and name.endswith("_prob"):
                setattr(holder, name, 0.0)  # parts of a spectrum left out by chance


def _owner(model: Any, path: str) -> Any:
    """The innermost part with a config of its own that holds this stack; None if that is the whole model."""
    parts = path.split(".")
    for end in range(len(parts) - 1, 0, -1):
        inner = model.get_submodule(".".join(parts[:end]))
        if hasattr(inner, "config") and hasattr(inner, "main_input_name"):
            return inner
    return None


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
    """`task`: as of `verify`. If the weights do not fit in memory, a model with the same structure and less width runs;
    if they are quantized and cannot be loaded here, one with random weights."""
    size = weights_size(task["small"])
    note = ""
    if size * _TIMES_IN_MEMORY > psutil.virtual_memory().available:
        edits = less_width(Builder(small.config(small.full), small.model_class, small.trust), _NARROWER).edits
        full, small = (Builder(b.config(changed(b.full, edits)), b.model_class, b.trust) for b in (full, small))
        model = small.with_random_weights()
        note = f"of {_NARROWER:g} of the width, with random weights: {size / 1e9:.1f} GB are too large for this machine"
    else:
        try:
            model, _ = load_model(task["small"], small, task["trust"])
        except Exception as error:
            if not is_quantized(small):
                raise
            model = small.with_random_weights()
            note = f"with random weights: the quantized ones cannot be loaded here: {in_short(error)}"
    found = RealRun(model, full, stacks, task["cuts"]).checks(step=task["smoke"])
    return {check: f"{said}; {note}" if note and has_passed(said) else said for check, said in found.items()}
