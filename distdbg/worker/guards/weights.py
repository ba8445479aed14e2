"""Compare the weights of the ranks a few times in a run."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import Any

from distdbg.worker.guards.shared.base import Guard, script_failed
from distdbg.worker.late_figures import LateNorms
from distdbg.worker.models import is_ddp, is_measured, parameters_of, plain_name, weak_or_gone

_MOST_PARAMETERS = 2000
#: Checksums that one fact has: of as many parameters, or of groups of neighbours.
_BLOCKS = 32
#: torch's own hooks for communication keep the ranks alike, but for those that average weights.
_HOOKS, _AVERAGES_WEIGHTS = "torch.distributed.algorithms.ddp_comm_hooks.", "post_local"


class WeightsDesynced(Guard):
    """Report checksums of the weights of a DDP model, or of parameters whose gradients the script reduces by itself;
    the rule compares the ranks.

    At the end of a script it counts the changes of a parameter: what is loaded after the last step is no drift."""

    id = "weights-desynced"
    most = 100
    costs = (
        "a pass over the weights at the steps 11, 22, 44 and so on, then each thousand: 5 ms for 26 million on a CPU; "
        "without DDP also before the steps 1 and 2, and if gradients are reduced, one search for the model"
    )
    blind = (
        "FSDP, whose ranks have different shards; buffers; parameters that DDP ignores, or beyond the 2,000th; local "
        "SGD, and hooks for communication that are not torch's; if ranks exchange activations (tensor parallel), "
        "parameters whose gradients are not reduced, but for a bias beside a reduced weight"
    )

    def begin(self) -> None:
        self._norms = LateNorms()
        self._model: Any = lambda: None
        self._ranks: list[int] = []
        #: steps and changes of the first parameter when a window opened and at the newest look
        self._opened = self._looked = (0, 0)
        self._hand: HandReduced | None = None
        self._hand_norms = LateNorms()
        #: by step, the norms of the parameters of `_hand`
        self._hand_looks: dict[int, list[float]] = {}
        self._agreeing: tuple[list[str], list[int], list[str]] | None = None
        self._is_due = False
        self.listen("optimizer", self._about_to_step)

    def window(self) -> None:
        parameters = self._parameters(self.context.model())
        if parameters:
            self._opened = self.page.steps(), next(iter(parameters.values()))._version

    def look(self) -> None:
        model = self.context.model()
        ranks = self.context.replicas() if is_ddp(model) and _keeps_alike(model) else []
        if not ranks:
            self._look_at_hand()
            return
        self._ranks, self._model = ranks, weak_or_gone(model)
        self._measure(last=False)

    def finish(self) -> None:
        """After the process group may have been destroyed."""
        if self._ranks and not script_failed() and self._is_as_stepped():
            self._measure(last=True)

    def _about_to_step(self, optimizer: Any) -> None:
        """Before a step all that the script does after the step before is done, as a broadcast of weights."""
        if self._hand is None and not self.context.distributed():
            return
        hand = self._hand or HandReduced(optimizer)
        parameters = hand.parameters()
        if hand.of() is not optimizer or not parameters or self.context.model() is not None or not hand.is_cheap():
            self._leave_hand()
            return
        if self._hand is None:
            self._hand = hand
            self.listen("call", self._called)
        self._take_hand()
        if hand.steps < 2 or self._is_due:
            self._is_due = False
            self._hand_norms.measure(parameters, (len(parameters), self.page.steps()))
            self._take_hand()
        hand.begin_step()

    def _called(self, frame: FrameType) -> None:
        if self._hand is not None:
            self._hand.called(frame)

    def _look_at_hand(self) -> None:
        if self._hand is None:
            self._leave_hand()
            return
        if self._agreeing is None:
            self.unsubscribe("call")
            self._agreeing = self._hand.must_agree()
        if self._agreeing[1]:
            self._is_due = True
        else:
            self._leave_hand()

    def _leave_hand(self) -> None:
        self.unsubscribe("optimizer")
        self.unsubscribe("call")
        self._hand, self._hand_looks = None, {}

    def _take_hand(self) -> None:
        """Take the norms that have arrived; report them once it is known which parameters must agree."""
        if (arrived := self._hand_norms.take()) is not None:
            norms, (count, step) = arrived
            if len(norms) == count:
                self._hand_looks[step] = norms
        first = min(self._hand_looks, default=0)
        if self._hand is None or self._agreeing is None or not self._hand_looks:
            return
        names, numbers, left_out = self._agreeing
        start = [checksum for _, checksum in _sums(names, [self._hand_looks[first][n] for n in numbers])]
        device, ranks = self._hand.parameters()[0].device, self._hand.ranks
        for step in sorted(self._hand_looks):
            norms = [self._hand_looks[step][n] for n in numbers]
            self._report_sums(step, names, norms, device, among=ranks, start=start, left_out=left_out[:_BLOCKS])
        self._hand_looks = {first: self._hand_looks[first]}

    def _measure(self, *, last: bool) -> None:
        self._send(last=last)
        if parameters := self._parameters(self._model()):
            self._looked = self.page.steps(), next(iter(parameters.values()))._version
            self._norms.measure(list(parameters.values()), (list(parameters), self.page.steps()))
        self._send(last=last)

    def _send(self, *, last: bool) -> None:
        if (arrived := self._norms.take(last=last)) is None:
            return
        norms, (names, step) = arrived
        model = self._model()
        device = next((p.device for p in model.parameters()), None) if model is not None else None
        self._report_sums(step, names, norms, device, among=self._ranks)

    def _report_sums(self, step: int, names: list[str], norms: list[float], device: Any, **fields: object) -> None:
        self.report(None, "", step, at=step, each=_block_length(norms), sums=_sums(names, norms),
                    machine=_machine(device), **fields)  # fmt: skip

    def _parameters(self, model: Any) -> dict[str, Any]:
        own = {f"module.{name}" for name in getattr(model, "parameters_to_ignore", ())}
        named = ((n, p) for n, p in model.named_parameters() if n not in own) if is_ddp(model) else ()
        return dict([(plain_name(n), p) for n, p in named if is_measured(p)][:_MOST_PARAMETERS])

    def _is_as_stepped(self) -> bool:
        """Whether the first parameter has changed since the last look as often as its steps explain."""
        parameters = self._parameters(self._model())
        steps, changes = self._looked[0] - self._opened[0], self._looked[1] - self._opened[1]
        if not parameters or steps <= 0:
            return False
        since = self.page.steps() - self._looked[0]
        changed: int = next(iter(parameters.values()))._version - self._looked[1]
        return changed * steps == changes * since


def _keeps_alike(model: Any) -> bool:
    """Whether gradients of the last backward were averaged, and by torch: local SGD averages weights now and then."""
    hooks = [getattr(hook, "__module__", "") + "." + getattr(hook, "__name__", "")
             for hook, _ in getattr(model, "_comm_hooks", None) or ()]  # fmt: skip
    averaged = getattr(model, "require_forward_param_sync", True) is not False
    return averaged and all(name.startswith(_HOOKS) and _AVERAGES_WEIGHTS not in name for name in hooks)


def _sums(names: list[str], norms: list[float]) -> list[list[str]]:
    """Of each group of neighbours the first name, and the checksum of their norms."""
    each = _block_length(norms)
    return [[names[at], _checksum(norms[at : at + each])] for at in range(0, len(norms), each)]


def _block_length(norms: list[float]) -> int:
    return -(-len(norms) // _BLOCKS)


def _checksum(norms: list[float]) -> str:
    from zlib import crc32

    return f"{crc32(repr(norms).encode()):08x}"


def _machine(device: Any) -> str:
    """What the last bit of a sum depends on."""
    torch = sys.modules["torch"]
    if device is not None and device.type == "cuda":
        return f"{torch.__version__}, {torch.cuda.get_device_name(device)}"
    return f"{torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"


#: Steps that are observed at least, and the share of them in which a gradient must be reduced.
_MIN_STEPS, _MIN_REDUCED_SHARE = 5, 0.9
#: Numbers of parameters on a CPU whose norms take 10 ms: more are not measured.
_MAX_NUMBERS_ON_CPU = 50_000_000
#: Times a step in which gradients are looked for among all parameters.
_MAX_SEARCHES = 4


class HandReduced:
    """The parameters of one optimizer, by their number in it: does the script all-reduce their gradients by itself?

    Parameters must stay equal on all ranks of a group if they were equal before the first step and their gradients are
    all-reduced over the group in each step. So must the other trained parameters of the same modules, if gradients are
    all that the ranks exchange. If they also exchange activations, a module may hold a shard beside a replicated
    parameter (the weight of a row-parallel layer beside its bias), and only one case is left: the bias beside a reduced
    weight of a module of torch, since each number of the bias belongs to a part of the weight.

    Of a parameter whose gradient is not reduced nothing else shows that it is meant to be equal. Shards that start at
    zero or one, a norm or head of each rank and a forgotten norm look alike: equal at the start, different later. And
    replicated parameters that are computed alike on each rank need not agree to the last bit on GPUs.
    """

    def __init__(self, optimizer: Any) -> None:
        self.of = weak_or_gone(optimizer)
        self.ranks: list[int] = []
        self.steps = 0
        self._reduced: Counter[int] = Counter()
        self._groups: set[tuple[int, ...]] = set()
        self._exchanges_other_data = False
        #: id of each gradient -> the number of its parameter; of one step
        self._gradients: dict[int, int] = {}
        self._searches = 0
        self._shapes = {one.shape for one in self.parameters()}

    def is_cheap(self) -> bool:
        """Whether a pass over the parameters takes no noticeable time."""
        numbers: int = sum(one.numel() for one in self.parameters() if one.device.type == "cpu")
        return numbers <= _MAX_NUMBERS_ON_CPU

    def parameters(self) -> list[Any]:
        """Empty if the optimizer is gone, or has parameters that torch shards (DTensor)."""
        optimizer = self.of()
        found = list(parameters_of(optimizer))[:_MOST_PARAMETERS] if optimizer is not None else []
        return [] if any(hasattr(one, "_local_tensor") or not is_measured(one) for one in found) else found

    def begin_step(self) -> None:
        self.steps += 1
        self._gradients, self._searches = {}, 0

    def called(self, frame: FrameType) -> None:
        """A function of torch.distributed is about to communicate."""
        name = frame.f_code.co_name
        if name.endswith("barrier"):
            return
        variables = frame.f_locals
        tensor = variables.get("tensor")
        number = self._number_of(tensor) if name == "all_reduce" else None
        if number is not None:
            self._reduced[number] += 1
            self._groups.add(_ranks_of(variables.get("group")))
        elif name != "all_reduce" or getattr(tensor, "numel", int)() != 1:  # one number is a loss or a metric
            self._exchanges_other_data = True

    def must_agree(self) -> tuple[list[str], list[int], list[str]]:
        """Return the names and numbers of the parameters that must stay equal, and the names of those of them whose
        gradients are not reduced. Empty lists if nothing shows that any must."""
        parameters = self.parameters()
        least = _MIN_REDUCED_SHARE * (self.steps - 1)  # the gradients of the first step came before it
        reduced = {n for n, times in self._reduced.items() if times >= least and n < len(parameters)}
        if not reduced or self.steps < _MIN_STEPS or len(self._groups) != 1:
            return [], [], []
        (ranks,) = self._groups
        self.ranks = list(ranks)
        names, biases = _names_of(self.of(), parameters)
        reduced_names = {names[n] for n in reduced if n in names}
        owners = {name.rpartition(".")[0] for name in reduced_names}
        left_out = [
            n for n, one in enumerate(parameters)
            if n not in reduced and n in names and names[n].rpartition(".")[0] in owners and one.grad is not None
            and (not self._exchanges_other_data or biases.get(n) in reduced_names)
        ]  # fmt: skip
        numbers = sorted({*reduced, *left_out})
        return [names.get(n, f"parameter {n}") for n in numbers], numbers, [names[n] for n in left_out]

    def _number_of(self, tensor: Any) -> int | None:
        """The number of the parameter that has this gradient."""
        number = self._gradients.get(id(tensor))
        may_be_one = getattr(tensor, "grad_fn", tensor) is None and tensor.shape in self._shapes
        if number is None and may_be_one and self._searches < _MAX_SEARCHES:
            self._searches += 1
            self._gradients = {id(p.grad): n for n, p in enumerate(self.parameters()) if p.grad is not None}
            number = self._gradients.get(id(tensor))
        return number


def _ranks_of(group: Any) -> tuple[int, ...]:
    dist = sys.modules["torch.distributed"]
    return tuple(int(rank) for rank in dist.get_process_group_ranks(group or dist.group.WORLD))


def _names_of(optimizer: Any, parameters: list[Any]) -> tuple[dict[int, str], dict[int, str]]:
    """Return the name of each parameter, by its number, in the module that holds all of them; and for each bias of a
    module of torch the name of the weight beside it. Goes through all objects once."""
    from distdbg.worker.watch.search import everything, wholes

    modules, _, _ = everything()
    holders = wholes(modules, [optimizer])
    if not holders:
        return {}, {}
    named = {id(parameter): name for name, parameter in holders[-1].named_parameters()}
    names = {n: named[id(one)] for n, one in enumerate(parameters) if id(one) in named}
    owners = dict(holders[-1].named_modules())
    biases = {}
    for n, name in names.items():
        owner, dot, last = name.rpartition(".")
        if last == "bias" and type(owners.get(owner)).__module__.startswith("torch.nn.modules."):
            biases[n] = f"{owner}{dot}weight"
    return names, biases
