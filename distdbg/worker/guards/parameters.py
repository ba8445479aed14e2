"""Detect parameters that an optimizer does not have, does not change, or has in the wrong group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.models import inner_of, is_fsdp1, local_part, parameters_of, plain_name, weak, weak_or_gone
from distdbg.worker.user_code import Where, users_line

_MOST_NAMES = 5
#: Parameters that are compared, and values of each: a sample is enough, since an optimizer changes nearly all of them.
_MOST_COMPARED, _VALUES_COMPARED = 256, 256
_MOST_OPTIMIZERS = 8


class OptimizerGuard(Guard):
    """Judges each optimizer of a model in DDP or FSDP2 once a window, before it steps."""

    def window(self) -> None:
        self.listen_in_window(optimizer=self._steps)

    def judge(self, optimizer: Any, model: Any) -> None:
        raise NotImplementedError

    def _steps(self, optimizer: Any) -> None:
        model = self.context.model()
        if model is not None and not is_fsdp1(model) and self.is_first(optimizer, _MOST_OPTIMIZERS):
            self.judge(optimizer, model)


class DecayedNorms(OptimizerGuard):
    """Detect norms and biases under weight decay in an optimizer that exempts others: a pattern of names misses some.

    Only where the intention is visible: one group decays nothing and has only vectors, another decays and has vectors,
    too. To decay everything in one group can be intended, and so can exempting norms and no other bias. Many decay
    embeddings on purpose."""

    id = "decayed-norms"
    modes = ("off", "warn", "error")
    most_windows = 1
    costs = "a walk over all parameters at the second step: about 1 ms for 1,000 of them"
    blind = (
        "optimizers that decay all or nothing: that may be intended; models without DDP or FSDP2; decay that is not in "
        "the optimizer's groups"
    )

    def judge(self, optimizer: Any, model: Any) -> None:
        groups = [group for group in optimizer.param_groups if isinstance(group.get("weight_decay"), (int, float))]
        decayed = [group for group in groups if group["weight_decay"] > 0]
        spared = [p for group in groups if group["weight_decay"] == 0 for p in group["params"]]
        if not decayed or not spared or not all(map(_is_vector, spared)):
            return
        names = _norms_and_biases(model)
        kinds = {names[id(p)][1] for p in spared if id(p) in names}
        known = [names[id(p)] for group in decayed for p in group["params"] if id(p) in names]
        vectors = [name for name, of_norm in known if of_norm or False in kinds]
        if vectors and kinds:
            self.report(users_line(), "norms or biases are decayed, while others are exempt", id(optimizer),
                     names=vectors[:_MOST_NAMES], count=len(vectors), exempt=len(spared))  # fmt: skip


def _is_vector(parameter: Any) -> bool:
    return bool(parameter.requires_grad and parameter.dim() <= 1)


def _norms_and_biases(model: Any) -> dict[int, tuple[str, bool]]:
    """id of a vector -> its name, and whether it is a norm's: all that a norm has, and what is called a bias."""
    found = {}
    for path, module in inner_of(model).named_modules():
        for name, parameter in module._parameters.items():
            of_norm = "Norm" in type(module).__name__
            if parameter is not None and _is_vector(parameter) and (of_norm or name == "bias"):
                found[id(parameter)] = plain_name(f"{path}.{name}"), of_norm
    return found


Rates = dict[int, set[float]]

#: A shorter list of layers shows no rule.
_FEWEST = 4
_MOST_SHOWN = 5


class LayerRatesMixed(OptimizerGuard):
    """Detect a layer with two learning rates, or another layer's, where rates rise or fall from layer to layer.

    torch refuses a parameter in two groups, but not a pattern like `layers.1` that also matches `layers.10`. Only where
    the intention is visible: nearly all layers of a list have one rate each, and those rates rise, or fall, without a
    break. Parts that have one rate in every layer are left out: biases and norms, or cross-attention in some layers."""

    id = "layer-rates-mixed"
    modes = ("off", "warn", "error")
    most_windows = 1
    costs = "a walk over all parameters at the second step, where there are more than two rates: about 1 ms for 1,000"
    blind = "models without DDP or FSDP2, or with fewer than four layers; rates that are no groups of one optimizer"

    def judge(self, optimizer: Any, model: Any) -> None:
        rates = _rates(optimizer)
        if len(set(rates.values())) < _FEWEST - 1:
            return
        names = {id(p): plain_name(name) for name, p in inner_of(model).named_parameters()}
        for name, layers in _lists(names, rates).items():
            odd = _odd_ones(layers)
            if odd:
                shown = [[f"{name}.{number}", sorted(layers[number])] for number in odd[:_MOST_SHOWN]]
                self.report(users_line(), "a layer has two rates, or another layer's", (id(optimizer), name),
                         layers=shown, count=len(odd), of=len(layers))  # fmt: skip


def _rates(optimizer: Any) -> dict[int, float]:
    """The initial rates, before a schedule moved. A tensor may be on a device, and is not read."""
    found: dict[int, float] = {}
    for group in optimizer.param_groups:
        rate = group.get("initial_lr", group.get("lr"))
        if isinstance(rate, (int, float)):
            found.update((id(p), float(rate)) for p in group["params"])
    return found


def _lists(names: dict[int, str], rates: dict[int, float]) -> dict[str, Rates]:
    """The first list of layers in each name: `blocks` -> {0: {1e-4}, 1: {2e-4}}. Parts of one rate are left out."""
    parts: dict[tuple[str, str], dict[int, float]] = {}
    for key, name in names.items():
        words = name.split(".")
        place = next((n for n, word in enumerate(words) if n and word.isdigit()), None)
        if place is not None and key in rates:
            part = ".".join(words[:place]), ".".join(words[place + 1 :])
            parts.setdefault(part, {})[int(words[place])] = rates[key]
    found: dict[str, Rates] = {}
    for (before, _), layers in parts.items():
        if len(layers) < 2 or len(set(layers.values())) > 1:
            for number, rate in layers.items():
                found.setdefault(before, {}).setdefault(number, set()).add(rate)
    return found


def _odd_ones(layers: Rates) -> list[int]:
    """Layers that break a rule which at least three quarters of the list follow."""
    order = sorted(layers)
    single = [n for n in order if len(layers[n]) == 1]
    if len(single) < _FEWEST:
        return []
    keep = max(_longest(single, layers, 1), _longest(single, layers, -1), key=len)
    strict = {next(iter(layers[n])) for n in keep}
    odd = [n for n in order if n not in keep]
    enough = len(strict) == len(keep) >= _FEWEST and 4 * len(keep) >= 3 * len(order)
    return odd if enough else []


def _longest(order: list[int], layers: Rates, direction: int) -> list[int]:
    """The longest part of the list whose rates only rise, or fall. Quadratic: a list of layers is short."""
    rate = {n: direction * next(iter(layers[n])) for n in order}
    best: list[list[int]] = []
    for n in order:
        before = max((chain for chain in best if rate[chain[-1]] < rate[n]), key=len, default=[])
        best.append([*before, n])
    return max(best, key=len)


class ParamsNotOptimized(Guard):
    """Detect parameters of the model that get gradients and are in no optimizer that steps.

    It asks once a window for all optimizers that stepped in a window, and between windows too where parameters are
    missing; it judges once another optimizer would have stepped, or at the end. A parameter that changes meanwhile is
    trained all the same: by an optimizer of copies of it, in float32 or on the host."""

    id = "params-not-optimized"
    most_windows = 3
    costs = (
        "a walk over all parameters at each window: about 1 ms for 1,000 of them, three times, then no more; where "
        "some are missing, a look at each step's optimizer between the windows, and a few of their values twice"
    )
    blind = "models without DDP or FSDP2; optimizers that step in none of three windows, where none was missing before"

    def begin(self) -> None:
        #: id -> how many numbers
        self._held: dict[int, int] = {}
        self._own: set[int] = set()
        self._free: dict[str, tuple[int, int]] = {}
        #: of parameters that were missing at a step and have not changed since: version and some values
        self._before: dict[str, tuple[Callable[[], Any], int, Any]] = {}
        self._changed: set[str] = set()
        self._known: dict[int, Callable[[], Any] | None] = {}
        self._where: Where | None = None
        self._parameters = 0

    def window(self) -> None:
        self.unsubscribe()
        self.listen_in_window(optimizer=self._steps)
        self._looked = False

    def window_ends(self) -> None:
        if self.windows == self.most_windows:
            self._judge()
        elif self._missing():
            self.listen("optimizer", self._steps_between)
            self.look()

    def finish(self) -> None:
        if 0 < self.windows < self.most_windows:
            self._judge()

    def _steps(self, optimizer: Any) -> None:
        self._hold(optimizer)
        model = self.context.model()
        if model is None or self._looked or is_fsdp1(model):
            return
        self._looked = True
        self._where = users_line()
        named = list(model.named_parameters())
        wanted = [(name, p) for name, p in named if p.requires_grad]
        self._parameters, self._own = len(wanted), {id(p) for _, p in named}
        self._free = {name: (id(p), size) for name, p in wanted if p.grad is not None and (size := _size(p))}
        if not (self._before or self._changed) and (missing := self._missing()):
            compared = [(name, p) for name, p in wanted if name in missing][:_MOST_COMPARED]
            self._before = {name: (weak_or_gone(p), p._version, _some_values(p)) for name, p in compared}

    def _steps_between(self, optimizer: Any) -> None:
        known = self._known.get(id(optimizer))
        if known is None or known() is not optimizer:
            self._known[id(optimizer)] = weak(optimizer)
            self._hold(optimizer)

    def _hold(self, optimizer: Any) -> None:
        if len(self._held) < 1_000_000:
            self._held.update((id(p), _size(p)) for p in parameters_of(optimizer))

    def _missing(self) -> dict[str, int]:
        """name -> how many numbers"""
        return {name: size for name, (own, size) in self._free.items() if own not in self._held}

    def _judge(self) -> None:
        """An optimizer without any parameter of the model may have copies, as manual mixed precision does; so may one
        that has others of the same sizes. Before the end another optimizer may still be made."""
        for known in self._known.values():
            if known is not None and (optimizer := known()) is not None:
                self._hold(optimizer)  # with groups that it has got since
        missing = self._missing()
        self.look()
        all_changed = self._changed and not self._before  # if many are missing, some are compared for all
        missing = {} if all_changed else {name: size for name, size in missing.items() if name not in self._changed}
        if missing:
            others = Counter(size for own, size in self._held.items() if own not in self._own)
            self.report(self._where, names=list(missing)[:_MOST_NAMES], count=len(missing), parameters=self._parameters,
                     none_held=len(missing) == len(self._free), copied=Counter(missing.values()) <= others,
                     ended=self.context.ended)  # fmt: skip
        self._held, self._free, self._known, self._before = {}, {}, {}, {}
        self._changed.clear()

    def look(self) -> None:
        """Note which missing parameters have changed. It waits for the device, but not at the end of the script, when
        the device may wait for a rank that has gone."""
        for name, (of, version, values) in list(self._before.items()):
            parameter = of()
            readable = parameter is not None and not (values.is_cuda and self.context.ended)
            if parameter is not None and (parameter._version != version or (readable and _differs(parameter, values))):
                self._changed.add(name)
                del self._before[name]


def _differs(parameter: Any, before: Any) -> bool:
    """Whether some values are others than before; False if they cannot be compared, as of a part that was gathered."""
    values = _some_values(parameter)
    same_place = values.shape == before.shape and values.device == before.device
    return same_place and bool((values != before).any())


def _some_values(parameter: Any) -> Any:
    """A copy of some of them, from all over the parameter; of a DTensor, of this rank's part."""
    values = local_part(parameter).reshape(-1)
    return values[:: max(1, values.numel() // _VALUES_COMPARED)].clone()


def _size(parameter: Any) -> int:
    """For a DTensor, the size of this rank's part: a copy would have that size."""
    return int(getattr(parameter, "_local_tensor", parameter).numel())


#: Passes over loaders that are followed by a look, where parameters are missing.
_PASSES = 100


class ParamsWithoutGrad(Guard):
    """Detect parameters in an optimizer that require a gradient and have never had one.

    An optimizer with a state for each parameter (Adam, SGD with momentum) makes it with the first gradient: one look
    covers all steps so far. Rarely used experts and branches have a state by then."""

    id = "params-without-grad"
    most_windows = 3
    costs = (
        "a walk over all parameters at steps 101 and 1001: about 0.5 ms for 1,000 of them; where some had no gradient, "
        "after passes over a loader, too"
    )
    blind = (
        "models without DDP or FSDP2; optimizers without a state for each parameter (SGD without momentum), or that "
        "make it before the first gradient (Adagrad); runs of fewer than 101 steps"
    )

    def begin(self) -> None:
        self._looks: dict[int, _GradientLook] = {}
        self.listen("data-end", self._data_ends)

    def window(self) -> None:
        self.listen_in_window(optimizer=self._steps)

    def window_ends(self) -> None:
        if self.windows == self.most_windows:
            self.unsubscribe()
            self._judge()

    def finish(self) -> None:
        """A look older than half of the run proves nothing about the rest."""
        self._look_again()
        for look in self._looks.values():
            if 2 * look.steps < self.page.steps():
                look.names = {}
        self._judge()

    def _data_ends(self, _iterator: object) -> None:
        """An optimizer of a function does not live until the end."""
        if not self.passes_end(_PASSES, "data-end"):
            self._look_again()

    def _look_again(self) -> None:
        for look in self._looks.values():
            optimizer = look.of()
            if look.names and optimizer is not None:
                look.take_again(optimizer, self.page.steps())

    def _steps(self, optimizer: Any) -> None:
        """Only optimizers that stepped in the first window: a later one is too young."""
        look, reference = self._looks.get(id(optimizer)), weak(optimizer)
        if self.windows == 1:
            if look is None and reference is not None and len(self._looks) < _MOST_OPTIMIZERS:
                self._looks[id(optimizer)] = _GradientLook(reference)
            return
        model = self.context.model()
        if look is None or look.of() is not optimizer or look.window == self.windows:
            return
        if model is None or is_fsdp1(model):
            return
        look.window, look.where = self.windows, users_line()
        look.take(optimizer, model, self.page.steps())

    def _judge(self) -> None:
        for look in self._looks.values():
            if look.names:
                self.report(look.where, names=list(look.names.values())[:_MOST_NAMES], count=len(look.names),
                         parameters=look.parameters, steps=look.steps)  # fmt: skip
        self._looks = {}


class _GradientLook:
    """One optimizer: names of parameters without a gradient in `steps` steps, by id: the optimizer keeps them alive."""

    def __init__(self, of: Callable[[], Any]) -> None:
        self.of = of
        self.names: dict[int, str] = {}
        self.where: Where | None = None
        self.window = self.steps = self.parameters = 0

    def take(self, optimizer: Any, model: Any, steps: int) -> None:
        without = self._without(optimizer, steps)
        self.names = {id(p): name for name, p in model.named_parameters() if id(p) in without}

    def take_again(self, optimizer: Any, steps: int) -> None:
        """Without the model: after a forward without a backward FSDP2 has replaced its parameters."""
        without = self._without(optimizer, steps)
        self.names = {own: name for own, name in self.names.items() if own in without}

    def _without(self, optimizer: Any, steps: int) -> set[int]:
        """Empty where the optimizer's state does not show which parameters had a gradient."""
        wanted = [p for p in parameters_of(optimizer) if p.requires_grad and p.numel()]
        state = optimizer.state
        stateless = [p for p in wanted if not state.get(p)]
        without = {id(p) for p in stateless if p.grad is None}
        self.steps, self.parameters = steps, len(wanted)
        return without if 2 * len(without) < len(wanted) and len(stateless) < len(wanted) else set()
