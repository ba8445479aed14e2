"""The heartbeat page: the layout of the file that a rank writes in node-local memory, and how it is read.

Numbers are the machine's own, each stored whole (8 aligned bytes), so a reader never sees half of one; two of them may
be of different moments. Times are CLOCK_MONOTONIC nanoseconds, which all processes of one boot share. worker/page.py
writes it. A change of the layout changes MAGIC.

    offset  type  field
         0  8s    magic, written last, so that a page with it is whole
         8  I     pid
        12  I     rank
        16  I     attempt
        20  I     (unused)
        24  q     started
        32  q     optimizer steps, counted here
        40  q     time of the last step
        48  q     since when the phase holds
        56  q     batches taken from DataLoaders
        64  q     step as the script itself says it (distdbg.tick), -1 for never
        72  q     phase (an index into PHASES)
        80  q     forwards of DDP and FSDP modules
        88  q     backwards
        96  q     saves
       104  q     complete passes over loaders
       112  q     calls of torch.distributed by Python code
       120  q     time of the last of them
       128  q     batches that were asked for: one more than taken while the rank waits, and after a stream's end
       136  q     time of the last forward
       144  q     time of the last backward
       152  q     sends and receives among the calls of torch.distributed
       160  q     passes over loaders in which steps were made: epochs, and no validation
       168  q     replays of CUDA graphs
       176  q     time of the last of them
       184  q     time of the last optimizer step's beginning
"""

from __future__ import annotations

from _struct import Struct

PAGE_BYTES = 4096
MAGIC = b"ddbgpg6\n"
PHASES = ("starting", "data", "computing", "forward", "backward", "optimizer", "saving", "other", "exiting")
LAYOUT = Struct("@8s4I21q")


class Page:
    """One reading. Times in ns of CLOCK_MONOTONIC; `user_step` is -1 where the script never said one."""

    __slots__ = ("asks", "attempt", "backward_ns", "backwards", "batches", "call_ns", "calls", "data_ends", "epochs",
                 "forward_ns", "forwards", "optimizer_ns", "phase", "phase_ns", "pid", "rank", "replay_ns", "replays",
                 "saves", "started_ns", "step", "step_ns", "transfers", "user_step")  # fmt: skip

    def __init__(self, pid: int, rank: int, attempt: int, phase: str, numbers: tuple[int, ...]) -> None:
        self.pid, self.rank, self.attempt, self.phase = pid, rank, attempt, phase
        self.started_ns, self.step, self.step_ns, self.phase_ns, self.batches, self.user_step = numbers[:6]
        self.forwards, self.backwards, self.saves, self.data_ends, self.calls, self.call_ns, self.asks = numbers[6:13]
        self.forward_ns, self.backward_ns, self.transfers, self.epochs = numbers[13:17]
        self.replays, self.replay_ns, self.optimizer_ns = numbers[17:]

    @property
    def heard(self) -> int:
        """The sum of all counts: while it does not change, the rank makes no progress that sends events."""
        counted = self.step + self.batches + self.forwards + self.backwards + self.saves + self.data_ends + self.calls
        return counted + self.replays + max(self.user_step, 0)

    @property
    def last_event_ns(self) -> int:
        """The time of the last event."""
        return max(self.phase_ns, self.step_ns, self.call_ns, self.replay_ns, self.started_ns)


def read_page(raw: bytes) -> Page | None:
    """None for bytes that are no page: too short, not begun, or another program's."""
    if len(raw) < LAYOUT.size:
        return None
    magic, pid, rank, attempt, _, *numbers = LAYOUT.unpack_from(raw)
    phase = numbers.pop(6)
    if magic != MAGIC or not 0 <= phase < len(PHASES):
        return None
    return Page(pid, rank, attempt, PHASES[phase], tuple(numbers))
