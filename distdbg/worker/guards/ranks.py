"""Report states of this rank; the rules of the same ids compare the ranks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from distdbg.worker.guards.shared.base import Guard, script_failed
from distdbg.worker.models import weak
from distdbg.worker.user_code import Where, users_line

#: The first passes of a loop are reported, and later ones with another length.
_PASSES = 3
_MOST_PASSES = 1000


class LoaderLengthsDiffer(Guard):
    """Report the batches of this rank's loader and the steps made with them; the rule compares the ranks.

    A fact is sent early in a pass, before a rank could hang because others have finished, and at its end; the number of
    backwards follows at the end of the script. Under `join()` lengths may differ; a loop that a script leaves early has
    no end."""

    id = "loader-lengths-differ"
    most = 32
    costs = "about 20 us for each pass over a loader"
    blind = "models without DDP or FSDP; IterableDataset, whose length is unknown; loaders that are no torch DataLoader"

    def begin(self) -> None:
        self._begun: _Begun | None = None
        self._numbers: dict[tuple[object, ...], tuple[int, int]] = {}
        self._backwards = self.page.backwards()
        self.listen("pass", self._begins)
        self.listen("data-end", self._ends)

    def _begins(self, iterator: Any) -> None:
        if self.passes_end(_MOST_PASSES):
            return
        total, reference = getattr(iterator, "_distdbg_batches", -1), weak(iterator)
        if total > 0 and reference is not None and self.context.distributed():
            self._begun = _Begun(reference, users_line(), total, self.page.steps())
            self.listen("optimizer", self._steps)

    def _steps(self, _optimizer: object) -> None:
        """The first step of the pass: it trains, with the loader that was begun last."""
        self.unsubscribe("optimizer")
        begun, model = self._begun, self.context.model()
        ranks = self.context.replicas()
        if begun is None or not ranks:
            return
        line = tuple((begun.where or [])[:2])
        if getattr(getattr(model, "_join_config", None), "enable", False) or len(self._numbers) >= 64:
            self._begun = None
            return
        number, length = self._numbers.get(line, (0, -1))
        self._numbers[line] = number + 1, begun.total
        if number < _PASSES or length != begun.total:
            begun.number = number
            self.report(begun.where, "", (number, "begins"), number=number, batches=begun.total, among=ranks)

    def _ends(self, iterator: Any) -> None:
        begun = self._begun
        if begun is not None and begun.of() is iterator:
            self._begun = None
            if begun.number is not None:
                steps = self.page.steps() - begun.steps
                self.report(begun.where, "", (begun.number, "ends"), number=begun.number, steps=steps)

    def finish(self) -> None:
        """Ranks with endless loaders have equal numbers; a rank that failed in a backward has counted it."""
        if self._reported:
            self.report(None, backwards=self.page.backwards() - self._backwards, by_itself=not script_failed())


class _Begun:
    """A pass; `number` counts those of one line that trained, once it is reported."""

    def __init__(self, of: Callable[[], Any], where: Where | None, total: int, steps: int) -> None:
        self.of, self.where, self.total, self.steps = of, where, total, steps
        self.number: int | None = None


class SeedsIdentical(Guard):
    """Report the state of the random numbers that dropout uses, before and after ten steps; the rule compares the
    ranks.

    A seed alone proves nothing: to seed all ranks alike for the initial weights, and to draw nothing later, is right.
    It reads the generator of the model's device; no number is drawn, and no device is read."""

    id = "seeds-identical"
    default = "off"  # Trainer and many others seed all ranks alike, and it costs them little
    most_windows = 2
    costs = "about 50 us at each of the steps 1, 11, 100 and 110, and a walk over the modules"
    blind = (
        "models without DDP or FSDP2, or without dropout; random numbers of NumPy, of Python and of the loader's "
        "workers; other devices than CPU and CUDA"
    )

    def begin(self) -> None:
        self._before: tuple[str, int, int] | None = None

    def window(self) -> None:
        model = self.context.model()
        if model is not None and self.context.distributed():
            self._before = _generator_state(model)

    def window_ends(self) -> None:
        before, self._before = self._before, None
        model, ranks = self.context.model(), self.context.replicas()
        if before is None or not ranks:
            return
        after = _generator_state(model)
        dropouts = [m for m in model.modules() if m.training and "Dropout" in type(m).__name__]
        active = sum(1 for m in dropouts if 0 < getattr(m, "p", 0) < 1)
        if after is not None and after != before and active:
            self.report(users_line(), "", self.windows, before=before, after=after, dropouts=active, among=ranks)


def _generator_state(model: Any) -> tuple[str, int, int] | None:
    """The device's kind, the seed, and the state of its numbers; None where it is not available."""
    parameter = next(model.parameters(), None)
    device, torch = getattr(parameter, "device", None), sys.modules["torch"]
    if device is None or device.type not in ("cpu", "cuda"):
        return None
    if device.type == "cpu":
        from zlib import crc32

        generator = torch.default_generator
        return "cpu", generator.initial_seed(), crc32(bytes(generator.get_state().tolist()))
    generator = torch.cuda.default_generators[device.index or 0]
    return "cuda", generator.initial_seed(), generator.get_offset()


#: What changes numbers, checkpoints or how ranks talk to each other.
_NAMES = ("torch", "numpy", "transformers", "accelerate", "lightning", "deepspeed", "flash_attn", "triton", "datasets")


class VersionsDiffer(Guard):
    """Report the versions and the script of this rank; the rule compares the ranks."""

    id = "versions-differ"
    costs = "once, about 100 us"
    blind = "packages that are imported later than the first step; the script's own modules"

    def window(self) -> None:
        if not self.context.distributed():
            return
        versions = {name: getattr(sys.modules.get(name), "__version__", None) for name in _NAMES}
        versions |= {"python": ".".join(map(str, sys.version_info[:3])), "the script": _checksum()}
        self.report(None, versions={name: str(found) for name, found in versions.items() if found is not None})


def _checksum() -> str | None:
    """Of the script; None where it is no file."""
    from zlib import crc32

    try:
        with open(sys.modules["__main__"].__file__ or "", "rb") as file:
            return f"checksum {crc32(file.read(4 << 20)):08x}"
    except (OSError, AttributeError):
        return None
