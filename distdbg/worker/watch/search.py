"""Find the model that neither DDP nor FSDP wraps, where the script does not name it.

When the first batch is requested, or before the first step, all objects of the process are searched once. The
candidates get a hook for one forward, and the outermost that is called is the model. Each has every parameter of every
optimizer, and no module with more is around it: this leaves out teachers, losses, metrics, one of a generator and its
critic, and a head without its backbone. Where anything is compiled no hook is added.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

from distdbg.worker.context import RankContext
from distdbg.worker.hooks import traced_outputs
from distdbg.worker.models import is_compiled, parameters_of, weak, weak_or_gone

Found = Callable[[Any], None]

#: This is only loaded once torch is, and may not be what loads it.
torch: Any = sys.modules["torch"]
_MOST_SEARCHES = 8


class Search:
    """One for a rank. `holds` gets a module with all parameters, `found` the model, or None once another optimizer
    steps other parameters: then the model is not certain any more."""

    def __init__(self, context: RankContext, holds: Found, found: Found) -> None:
        self._context, self._holds, self._found = context, holds, found
        self._model: Callable[[], Any] = lambda: None
        self._maybe: list[Any] = []
        self._hooks: list[Any] = []
        self._known: dict[int, Callable[[], Any] | None] = {}
        self._since: int | None = None
        self._left = _MOST_SEARCHES
        self._unsubscribe = context.bus.subscribe_all(
            ("forward", self._wrapped), ("pass", self._pass), ("optimizer", self._optimizer), ("save", self._saves)
        )

    def end(self) -> None:
        self._unsubscribe()
        self._drop()

    def _wrapped(self, _model: object) -> None:
        self.end()

    def _pass(self, _iterator: object) -> None:
        """Before the first forward, to observe it: scripts make their optimizer before their first batch."""
        if not self._known and self._left > _MOST_SEARCHES // 2:
            self._look([])

    def _optimizer(self, optimizer: Any) -> None:
        known = self._known.get(id(optimizer))
        if known is None or known() is not optimizer:
            self._look([optimizer])
        elif self._hooks and self._since in (None, id(optimizer)):
            if self._since is not None:
                self._drop()  # a whole step without a forward of a candidate
            self._since = id(optimizer)

    def _saves(self, _path: object) -> None:
        """A whole model is saved without our hooks; then the search starts again."""
        if self._hooks:
            self._drop()
            self._known = {}

    def _look(self, stepping: list[Any]) -> None:
        self._drop()
        if not self._left:
            self._forget()
            self.end()
            return
        self._left -= 1
        modules, optimizers, compiled = everything()
        optimizers += [one for one in stepping if not any(one is other for other in optimizers)]
        self._known = {id(one): weak(one) for one in optimizers}
        maybe = wholes(modules, optimizers)
        if not any(module is self._model() for module in maybe):
            self._forget()
            self._begin(maybe, compiled=compiled)
        self._since = id(stepping[0]) if stepping else None

    def _begin(self, maybe: list[Any], *, compiled: bool) -> None:
        if not maybe:
            return
        self._holds(maybe[-1])  # the outermost
        if is_compiled(maybe[-1]):
            self._take(maybe[-1])
        elif not compiled:
            self._maybe = [weak(module) for module in maybe]
            traced_outputs.began = self._called
            self._hooks = [one.register_forward_pre_hook(traced_outputs.begins, with_kwargs=True) for one in maybe]

    def _called(self, module: Any, args: Any, kwargs: Any) -> None:
        if torch.is_grad_enabled() and any(one() is module for one in self._maybe):
            self._drop()
            self._take(module)
            traced_outputs.begins(module, args, kwargs)  # others observe this forward, too

    def _take(self, model: Any) -> None:
        self._model = weak_or_gone(model)
        self._found(model)

    def _forget(self) -> None:
        if self._model() is not None:
            self._take(None)

    def _drop(self) -> None:
        hooks, self._hooks, self._maybe = self._hooks, [], []
        for hook in hooks:
            hook.remove()
        if traced_outputs.began == self._called:
            traced_outputs.began = None


def everything() -> tuple[list[Any], list[Any], bool]:
    """All modules, all optimizers, and whether anything was given to torch.compile. No attribute is read: some
    objects run code then."""
    compilers = getattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizeContext", ())
    kinds = (torch.nn.Module, torch.optim.Optimizer, compilers)
    found = [one for one in gc.get_objects() if issubclass(type(one), kinds)]
    modules = [one for one in found if issubclass(type(one), torch.nn.Module)]
    optimizers = [one for one in found if issubclass(type(one), torch.optim.Optimizer)]
    return modules, optimizers, len(modules) + len(optimizers) < len(found)


def wholes(modules: list[Any], optimizers: list[Any]) -> list[Any]:
    """Modules with all optimized parameters, and as many parameters as any module around them; the innermost first."""
    wanted = {id(parameter) for optimizer in optimizers for parameter in parameters_of(optimizer)}
    one = next(iter(wanted), None)
    above: dict[int, dict[int, Any]] = {}
    for module in modules:
        for child in vars(module).get("_modules", {}).values():
            above.setdefault(id(child), {})[id(module)] = module
    chain = [module for module in modules
             if any(id(parameter) == one for parameter in vars(module).get("_parameters", {}).values())]  # fmt: skip
    for module in chain:  # it grows meanwhile
        chain += [outer for outer in above.get(id(module), {}).values() if all(outer is not known for known in chain)]
    held = [{id(parameter) for parameter in module.parameters()} for module in chain]
    most = max(map(len, held), default=0)
    return [module for module, own in zip(chain, held, strict=True) if wanted <= own and len(own) == most]
