"""Install what was requested, and report the result: a model that cannot be made smaller is reported as whole."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from distdbg.whole_file import write_whole
from distdbg.worker.context import RankContext
from distdbg.worker.shrunk.keep_layers import KeepLayers
from distdbg.worker.shrunk.skip_attention import SkipAttention, make_ready
from distdbg.worker.shrunk.stacks import place_modules


def start(context: RankContext) -> None:
    """Meet the request of the launch. Raises SystemExit if it cannot be met."""

    def meet_request() -> None:
        keep, skip = int(os.environ.get("DISTDBG_KEEP_LAYERS") or 0), os.environ.get("DISTDBG_SKIP_ATTENTION", "")
        Shrinking(context, keep, skip, loaded=bool(os.environ.get("DISTDBG_FULL_LOAD"))).start()

    _call_or_end(context, meet_request)


class Shrinking:
    """One for a rank. Raises ValueError for an invalid request."""

    def __init__(self, context: RankContext, keep: int, skip: str, *, loaded: bool = False) -> None:
        self._context = context
        self._keep = KeepLayers(keep, self._report, loaded=loaded) if keep else None
        self._skip = SkipAttention(skip) if skip else None
        self._reported = False

    def start(self) -> None:
        imports, bus = self._context.imports, self._context.bus
        imports.after("transformers.modeling_utils", self._or_end(self._transformers))
        if self._skip is not None:
            imports.after("torch.nn.functional", self._or_end(self._skip.patch_functional))
            imports.after("torch.nn.attention.flex_attention", self._or_end(self._skip.patch_flex))
            bus.subscribe("forward", self._place)
        bus.subscribe("step", self._first_step)
        bus.subscribe("save-end", self._mark)

    def _or_end(self, put: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
        """A rank that cannot do it (another version on its node) must not train beside others that can."""
        return lambda module: _call_or_end(self._context, lambda: put(module))

    def _transformers(self, module: ModuleType) -> None:
        if self._keep is not None:
            self._keep.patch_transformers(module)
        if self._skip is not None:
            self._skip.patch_transformers(module)
            plain = module.PreTrainedModel.post_init

            def post_init(model: Any) -> None:
                plain(model)
                place_modules(model)

            module.PreTrainedModel.post_init = post_init

    def _place(self, model: Any) -> None:
        """A plain module is known from the first forward of its DDP or FSDP wrapper."""
        if not getattr(model, "_distdbg_placed", False):
            make_ready()
            place_modules(model)
            model.__dict__["_distdbg_placed"] = True

    def _first_step(self, _optimizer: object) -> None:
        if not self._reported:
            self._reported = True
            self._report()

    def _report(self) -> None:
        """At the first step; layers at once, since a rank may die before it."""
        fields: dict[str, Any] = {}
        if self._keep is not None:
            fields["kept"] = {path: list(counts) for path, counts in self._keep.kept.items()}
            fields["loaded"] = self._keep.loaded
        if self._skip is not None:
            fields |= {"skipped": sorted(self._skip.skipped), "real": sorted(self._skip.kept)}
            fields["unplaced"] = self._skip.unplaced
        self._context.fact("shrunk", **fields)

    def _mark(self, path: object) -> None:
        """Beside a checkpoint: no later reader may mistake it for the whole model's."""
        if isinstance(path, (str, os.PathLike)):
            words = " ".join(sys.argv)
            text = f"Written while distdbg had made the model smaller (--keep-layers, --skip-attention): {words}\n"
            write_whole(f"{os.fspath(path)}.shrunk.txt", text, private=False)


def _call_or_end(context: RankContext, do: Callable[[], None]) -> None:
    """Call `do`. If it raises, end the script before it has begun: SystemExit."""
    try:
        do()
    except Exception as error:
        because = repr(error)
    else:
        return
    # outside of the handler: else the error would be printed in place of this message
    context.fact("not-shrunk", error=because)
    raise SystemExit(
        f"distdbg: the model cannot be made smaller in this rank ({because}). Other ranks may be able to, and a job of "
        "two models would hang: it does not start. Leave out --keep-layers and --skip-attention."
    )
