"""Write a table of each module's inputs and outputs on rank 0, again when a batch has other shapes (`--watch shapes`).

All modules have hooks for one forward; after it only the shapes of each batch are compared.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from distdbg.worker.agent_files import AgentFiles
from distdbg.worker.context import RankContext
from distdbg.worker.hooks import traced_outputs
from distdbg.worker.watch.root import RootWatch

#: This is only loaded once torch is, and may not be what loads it.
torch: Any = sys.modules["torch"]
_MOST_TABLES = 20
_MOST_MODULES = 20_000
_HEAD = ("module", "class", "takes", "gives", "parameters of its own")


class ShapeWatch:
    """One for a rank; it listens on rank 0 only."""

    def __init__(self, context: RankContext, root: RootWatch) -> None:
        self._context, self._root = context, root
        self._known: set[object] = set()
        self._files = AgentFiles(context, "shapes")
        self._texts: list[str] = []
        self._hooks: list[Any] = []
        self._table: ShapeTable | None = None
        if context.rank == 0:
            root.listen(self._begins)

    def model(self, model: Any) -> None:
        if self._context.rank == 0:
            self._root.model(model)

    def finish(self, *, failed: bool) -> None:  # noqa: ARG002
        """A forward that raised is reported up to its error."""
        self._forward_ends()
        self.end()

    def end(self) -> None:
        self._unhook()
        self._root.unsubscribe(self._begins)

    def _begins(self, module: Any, args: Any, kwargs: Any) -> None:
        if self._table is not None:  # the forward before has raised
            self._forward_ends()
        like = signature((args, kwargs))
        if like in self._known:
            return
        self._known.add(like)
        self._table = ShapeTable(module, self._context.page.steps() + 1)
        traced_outputs.shaped = self._shaped
        for inner in list(module.modules())[:_MOST_MODULES]:
            if getattr(inner, "_compiled_call_impl", None) is None and "Script" not in type(inner).__name__:
                self._hooks.append(inner.register_forward_hook(traced_outputs.has_shape, with_kwargs=True))
        if len(self._known) >= _MOST_TABLES:
            self._root.unsubscribe(self._begins)

    def _shaped(self, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        if self._table is not None and self._table.take(module, args, kwargs, output):
            self._forward_ends()

    def _forward_ends(self) -> None:
        self._unhook()
        table, self._table = self._table, None
        if table is not None:
            self._texts.append(table.text())
            self._files.write("shapes.txt", "\n".join(self._texts).encode("utf-8", "replace"))
            self._files.send()

    def _unhook(self) -> None:
        hooks, self._hooks = self._hooks, []
        for hook in hooks:
            hook.remove()
        if hooks:
            traced_outputs.shaped = None


class ShapeTable:
    """The table of one forward. It keeps names and descriptions, no module."""

    def __init__(self, model: Any, step: int) -> None:
        self._step, self._whole = step, False
        self._names = {id(inner): name for name, inner in model.named_modules()}
        self._classes = {name: type(inner).__name__ for name, inner in model.named_modules()}
        self._parameters = sum(p.numel() for p in model.parameters())
        self._calls: dict[str, tuple[str, str, int]] = {}
        self._again: dict[str, int] = {}

    def take(self, module: Any, args: Any, kwargs: Any, output: Any) -> bool:
        """True for the model itself, which is last. For a module that is called again the first call counts."""
        name = self._names.get(id(module))
        if name is not None and name not in self._calls:
            own = sum(p.numel() for p in module.parameters(recurse=False))
            given = [describe(value) for value in args] + [f"{key}={describe(v)}" for key, v in kwargs.items()]
            self._calls[name] = ", ".join(given), describe(output), own
        elif name is not None:
            self._again[name] = self._again.get(name, 1) + 1
        self._whole = self._whole or name == ""
        return name == ""

    def text(self) -> str:
        """A line a module, in the model's order."""
        rows = [_HEAD]
        for name in (name for name in self._classes if name in self._calls):
            takes, gives, own = self._calls[name]
            times = f" x{self._again[name]}" if name in self._again else ""
            rows.append(((name or "the model") + times, self._classes[name], takes, gives, f"{own:,}"))
        widths = [min(100, max(len(row[n]) for row in rows)) for n in range(len(_HEAD))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        silent = [name for name in self._classes if name and name not in self._calls]
        if silent:
            more = f" and {len(silent) - 10} more" if len(silent) > 10 else ""
            lines.append(f"not called, or compiled: {', '.join(silent[:10])}{more}")
        end = "" if self._whole else "; the forward did not finish"
        return "\n".join((f"At step {self._step}, {self._parameters:,} parameters{end}", *lines, ""))


_MOST, _DEEPEST, _LONGEST = 8, 4, 240


def describe(value: object) -> str:
    """`float32[8, 4]`, `(float32[8, 4], None)`, `CausalLMOutput{logits: bfloat16[2, 16, 1000]}`."""
    text = _words(value, _DEEPEST)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 2]} …"


def signature(value: object, deepest: int = _DEEPEST) -> tuple[object, ...]:
    """Only the shapes and dtypes of a value, for comparison."""
    return tuple((tensor.shape, tensor.dtype) for tensor in _tensors(value, deepest))


def _words(value: object, deepest: int) -> str:
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, (int, float, bool)) or value is None:
        return repr(value)
    inner = deepest - 1
    if deepest and isinstance(value, dict):
        kind = "" if type(value) is dict else type(value).__name__
        pairs = [f"{key}: {_words(one, inner)}" for key, one in list(value.items())[:_MOST]]
        return f"{kind}{{{_joined(pairs, len(value))}}}"
    if deepest and isinstance(value, (list, tuple)):
        kind = "" if type(value) in (list, tuple) else type(value).__name__
        words = _joined([_words(one, inner) for one in value[:_MOST]], len(value))
        return f"{kind}[{words}]" if isinstance(value, list) else f"{kind}({words})"
    return type(value).__name__


def _tensor(tensor: Any) -> str:
    text = f"{str(tensor.dtype).removeprefix('torch.')}[{', '.join(str(size) for size in tensor.shape)}]"
    part = getattr(tensor, "_local_tensor", None)
    return text if part is None else f"{text} (here [{', '.join(str(size) for size in part.shape)}])"


def _joined(words: list[str], count: int) -> str:
    return ", ".join(words) + (f", … {count - len(words)} more" if count > len(words) else "")


def _tensors(value: object, deepest: int) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif deepest and isinstance(value, (dict, list, tuple)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _tensors(one, deepest - 1)
