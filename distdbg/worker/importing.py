"""Calls back when a module has just been imported. One finder, which nobody sees afterwards."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    Callback = Callable[[ModuleType], None]
    Failed = Callable[[str, Exception], None]


class _Loader:
    """Stands in for a module's loader while the module is executed, and then gives the place back."""

    def __init__(self, loader: Any, callbacks: Sequence[Callback], failed: Failed) -> None:  # noqa: ANN401
        self._loader = loader
        self._callbacks = callbacks
        self._failed = failed

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        spec.loader = self._loader
        module: ModuleType | None = self._loader.create_module(spec)
        spec.loader = self  # type: ignore[assignment]
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        for callback in self._callbacks:
            try:
                callback(module)
            except Exception as error:  # ours must never fail an import
                self._failed(module.__name__, error)


class ImportWatch:
    """A finder for sys.meta_path. `failed(module, error)` hears of a callback that raised."""

    def __init__(self, failed: Failed) -> None:
        self._failed = failed
        self._callbacks: dict[str, list[Callback]] = {}

    def after(self, name: str, callback: Callback) -> None:
        """Call at once where the module is there already."""
        module = sys.modules.get(name)
        if module is not None:
            callback(module)
        else:
            self._callbacks.setdefault(name, []).append(callback)

    def install(self) -> None:
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        if name not in self._callbacks:
            return None
        callbacks = self._callbacks.pop(name)
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, callbacks, self._failed)  # type: ignore[assignment]
                return spec
        self._callbacks[name] = callbacks
        return None
