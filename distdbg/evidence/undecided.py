"""What is known of a hang whose cause is not: so that nobody is named, and nothing is kept back."""

from __future__ import annotations

from distdbg.evidence.hang import Hang, hang_of
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.standing import Doing
from distdbg.model import Unknown, fold_ranks

_MOST_PLACES = 6


def undecided(evidence: RunEvidence) -> Unknown | None:
    """For a job that stands still and of which no check has found why. None where no dump shows it standing."""
    hang = hang_of(evidence)
    if hang is None:
        return None
    return Unknown("why the job stands still", f"{_why(hang)}: {_places(hang)}")


def _why(hang: Hang) -> str:
    if hang.moved and not hang.stands:
        return f"{_ranks(hang.moved)} went on while it was looked at"
    unread = tuple(sorted(r for r, had in hang.dump.ranks.items() if had.recorder is None and _waits(hang, r)))
    if unread:
        return f"the flight recorder of {_ranks(unread)}, which waits for others, was not had"
    if any(s.doing is Doing.TRANSFER for s in hang.standings.values()):
        return (
            "as many sends as receives were begun between the ranks that wait in them, whose tags or sizes may "
            "differ, or the network is cut"
        )
    return "no rank was found that the others wait for"


def _waits(hang: Hang, rank: int) -> bool:
    return hang.standings[rank].doing.waits_for_ranks


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
