"""What is known of a hang whose cause is not: so that nobody is named, and nothing is kept back."""

from __future__ import annotations

from distdbg.diagnosis.timeline.standing import Doing
from distdbg.diagnosis.waits.hang import Hang, hang_of
from distdbg.evidence.run import RunEvidence
from distdbg.model import Unknown, fold_ranks

_MOST_PLACES = 6
_WHAT = "why the job stands still"


def undecided(evidence: RunEvidence, *, hung: bool) -> Unknown | None:
    """For a job of which no check has found why it stands still; `hung` where its launcher saw that it does."""
    hang = hang_of(evidence)
    if hang is None:
        return _unknown("nothing of its ranks was collected while it did") if hung else None
    if not hang.stands:
        why = f"{_ranks(hang.moved)} went on while it was looked at" if hang.moved else "it was heard of meanwhile"
        return _unknown(why) if hung else None
    return _unknown(f"{_why(hang)}: {_places(hang)}") if hang.waits or hung else None


def _unknown(because: str) -> Unknown:
    return Unknown(_WHAT, because, decisive=True)


def _why(hang: Hang) -> str:
    unread = tuple(sorted(r for r, had in hang.dump.ranks.items() if had.recorder is None and _collects(hang, r)))
    if unread:
        return f"the flight recorder of {_ranks(unread)}, which waits for others, was not had"
    if any(wait.on_device and wait.started is None for wait in hang.complete):
        return (
            "every host has enqueued the operation and no device completes it, so one of the devices or the network "
            "between them is at fault; `--preset hang` records which devices have started it"
        )
    if any(s.doing is Doing.TRANSFER for s in hang.standings.values()):
        return (
            "as many sends as receives were begun between the ranks that wait in them, whose tags or sizes may "
            "differ, or the network is cut"
        )
    return "no rank was found that the others wait for"


def _collects(hang: Hang, rank: int) -> bool:
    return hang.standings[rank].doing is Doing.COLLECTIVE


def _places(hang: Hang) -> str:
    """`rank 0 waits in send at train.py:7; ranks 1-3 wait in …`: where everybody stands."""
    together: dict[tuple[str, str], list[int]] = {}
    for rank, standing in sorted(hang.standings.items()):
        place = f" at {standing.frame.file.rpartition('/')[2]}:{standing.frame.line}" if standing.frame else ""
        together.setdefault((standing.phrase, place), []).append(rank)
    told = [f"{_ranks(ranks)}: {phrase}{place}" for (phrase, place), ranks in together.items()]
    more = f"; and {len(told) - _MOST_PLACES} places more" if len(told) > _MOST_PLACES else ""
    return "; ".join(told[:_MOST_PLACES]) + more


def _ranks(ranks: list[int] | tuple[int, ...]) -> str:
    return f"rank{'' if len(ranks) == 1 else 's'} {fold_ranks(tuple(ranks))}"
