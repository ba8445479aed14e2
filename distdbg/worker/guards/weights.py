"""Compare the weights of the ranks a few times in a run."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from distdbg.worker.guards.shared.base import Guard, script_failed
from distdbg.worker.guards.shared.hand_reduced import HandReduced
from distdbg.worker.late_figures import LateNorms
from distdbg.worker.models import is_ddp, is_measured, plain_name, weak_or_gone

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
        begun = [self._hand_looks[first][n] for n in numbers]
        parameters = self._hand.parameters()
        for step in sorted(self._hand_looks):
            sums = _sums(names, [self._hand_looks[step][n] for n in numbers])
            start = [checksum for _, checksum in _sums(names, begun)]
            self.report(
                None,
                "",
                step,
                at=step,
                each=-(-len(names) // _BLOCKS),
                sums=sums,
                start=start,
                left_out=left_out[:_BLOCKS],
                machine=_machine(parameters[0].device),
                among=self._hand.ranks,
            )
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
        self.report(None, "", step, at=step, each=-(-len(norms) // _BLOCKS), sums=_sums(names, norms),
                    machine=_machine(device), among=self._ranks)  # fmt: skip

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
    each = -(-len(norms) // _BLOCKS)
    return [[names[at], _checksum(norms[at : at + each])] for at in range(0, len(norms), each)]


def _checksum(norms: list[float]) -> str:
    from zlib import crc32

    return f"{crc32(repr(norms).encode()):08x}"


def _machine(device: Any) -> str:
    """What the last bit of a sum depends on."""
    torch = sys.modules["torch"]
    if device is not None and device.type == "cuda":
        return f"{torch.__version__}, {torch.cuda.get_device_name(device)}"
    return f"{torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"
