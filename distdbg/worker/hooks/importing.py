"""Call a function when a module has just been imported. The module cannot see this, neither then nor later.

No loader is wrapped: our frame below a module's code would be in the traceback of every import that fails, and a
missing library is a common end of `import torch`. Instead the import system itself reports the end of a load: it sets
`_initializing` in the module's spec to False, and until then the spec has a class of ours.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    Callback = Callable[[ModuleType], None]
    Failed = Callable[[str, Exception], None]


class ImportWatch:
    """A finder for sys.meta_path that finds nothing by itself. It stays there: to remove it while another thread
    iterates over the list could make that skip the next finder. `failed(module, error)` is called for a callback
    that raised: no import fails because of it."""

    def __init__(self, failed: Failed) -> None:
        self._failed = failed
        self._callbacks: dict[str, list[Callback]] = {}
        self._classes: dict[type, type] = {}

    def after(self, name: str, callback: Callback) -> None:
        """At once where the module is imported already."""
        module = sys.modules.get(name)
        if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
            self._call(callback, module)
            return
        self._callbacks.setdefault(name, []).append(callback)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def clear(self) -> None:
        """Forget all callbacks."""
        self._callbacks.clear()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        if name not in self._callbacks or _is_query():
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                self._watch(spec)
                return spec
        return None

    def _watch(self, spec: ModuleSpec) -> None:
        plain = type(spec)
        try:
            spec.__class__ = self._classes.setdefault(plain, _reporting(plain, self._loaded))
        except TypeError:
            return  # a spec of another making, which cannot be watched

    def _loaded(self, name: str) -> None:
        module = sys.modules.get(name)
        if module is None:
            return  # it failed, and may be tried again
        for callback in self._callbacks.pop(name, ()):
            self._call(callback, module)

    def _call(self, callback: Callback, module: ModuleType) -> None:
        try:
            callback(module)
        except Exception as error:
            self._failed(module.__name__, error)


def _reporting(plain: type, loaded: Callable[[str], None]) -> type:
    """A subclass of a spec's class: when `_initializing` becomes False it restores the class and calls back."""

    def __setattr__(spec: ModuleSpec, name: str, value: object) -> None:  # noqa: N807
        object.__setattr__(spec, name, value)
        if name == "_initializing" and value is False:
            spec.__class__ = plain
            loaded(spec.name)

    names = {"__slots__": (), "__setattr__": __setattr__, "__module__": plain.__module__}
    return type(plain.__name__, (plain,), names)


def _is_query() -> bool:
    """Whether importlib.util.find_spec asks for the module, which imports nothing."""
    frame = sys._getframe(2)
    if frame.f_code.co_name == "_find_spec" and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_name == "find_spec"
