"""A sampler that shuffles by its epoch, gone through again and again under the same epoch: the same order each time.

A batch that somebody peeks at, or an evaluation, is no pass.
"""

from __future__ import annotations

from distdbg.worker.guards._base import users_line
from distdbg.worker.guards._passes import PassGuard, samplers_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from distdbg.worker.guards._passes import Pass


class MissingSetEpoch(PassGuard):
    id = "missing-set-epoch"
    modes = ("off", "warn", "fix", "error")
    costs = "about 10 us for each pass over a loader"
    blind = (
        "samplers without the attributes `epoch`, and `shuffle` or `seed`; datasets that shuffle by themselves "
        "(IterableDataset); loaders that are no torch DataLoader; `fix` comes one pass late where workers fetch ahead"
    )

    def begin(self) -> None:
        super().begin()
        self._mended: tuple[Pass, str, int] | None = None

    def pass_begins(self, now: Pass, iterator: Any) -> bool:  # noqa: ANN401
        for sampler in samplers_of(iterator):
            epoch = getattr(sampler, "epoch", None)
            if type(epoch) is int and hasattr(sampler, "set_epoch") and _shuffles(sampler):
                break
        else:
            return False
        now.about = epoch
        if now.before is None or now.before.about != epoch:
            return True
        now.where = users_line()
        if self.mode == "fix":
            sampler.set_epoch(epoch + 1)
            if not getattr(iterator, "_num_workers", 0):  # nothing is drawn yet: this pass is mended, too
                now.about = epoch + 1
            self._mended = now, type(sampler).__name__, epoch
        return True

    def trained(self, now: Pass) -> None:
        """Of what was mended it is told now: where a batch was only peeked at, the script may tell the epoch itself."""
        if self._mended is not None and self._mended[0] is now:
            self.say(now.where, sampler=self._mended[1], epoch=self._mended[2], fixed=True)
        if now.before is not None and now.before.about == now.about and self.mode != "fix":
            self.say(now.where, f"two passes had the same order, that of epoch {now.about}", epoch=now.about)


def _shuffles(sampler: Any) -> bool:  # noqa: ANN401
    """It says so; or says nothing, and has a seed beside the epoch, as batch samplers do that always shuffle."""
    said = getattr(sampler, "shuffle", None)
    return said is True or (said is None and type(getattr(sampler, "seed", None)) is int)
