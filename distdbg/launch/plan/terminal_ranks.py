"""Choose the ranks whose output the terminal shows, by --show-ranks or torchrun's own flags. Pure."""

from __future__ import annotations

from distdbg.errors import UsageError
from distdbg.model import fold_ranks, unfold_ranks
from distdbg.settings import JobSettings

_BOTH = 3


def shown_ranks(settings: JobSettings, nodes: int, nproc: int | None, *, elsewhere: bool) -> str:
    """As --show-ranks writes it: `all`, `none`, or global ranks.

    Under torchrun a rank is seen unless its streams are redirected and not teed, or the filter leaves it out; these
    flags name local ranks. `elsewhere`: other nodes hold some of the ranks, and which are ours is not known yet.
    """
    flags = settings.torchrun
    asked = any(name in flags for name in ("tee", "redirects", "local-ranks-filter"))
    if "show_ranks" in settings.model_fields_set or not asked:
        return settings.show_ranks
    count = nproc or 1
    tee, redirects = (_streams(name, flags.get(name, "0"), count) for name in ("tee", "redirects"))
    wanted = _filter(flags.get("local-ranks-filter", ""), count)
    local = [rank for rank in range(count) if rank in wanted and (tee[rank] or redirects[rank] != _BOTH)]
    if len(local) == count or (elsewhere and local) or nproc is None:
        return "all" if local else "none"
    return fold_ranks(node * count + rank for node in range(nodes) for rank in local) or "none"


def check_named_ranks(settings: JobSettings, world_size: int | None) -> None:
    """Raises UsageError where none of the ranks that an option names exists; `world_size` None: not known yet."""
    for option, named in (("--show-ranks", settings.show_ranks), ("--profile-ranks", settings.profile_ranks)):
        ranks = () if named in ("all", "none") else unfold_ranks(named)
        if world_size and ranks and ranks[0] >= world_size:
            there = "is rank 0 alone" if world_size == 1 else f"has ranks 0 to {world_size - 1}"
            raise UsageError(f"{option} {named}: the job {there}", "Name ranks that there are, or `all`.")


def _streams(name: str, text: str, count: int) -> list[int]:
    """torchrun's `3`, or `0:1,1:2`: for each local rank 0 nothing, 1 standard output, 2 standard error, 3 both."""
    try:
        if ":" not in text:
            return [_stream(text)] * count
        pairs = (part.split(":") for part in text.split(","))
        by_rank = {int(rank): _stream(value) for rank, value in pairs}
    except ValueError:
        raise UsageError(
            f"--{name} {text!r} is neither 0 to 3 nor a list of local ranks such as 0:1,1:2",
            "1 is standard output, 2 standard error, 3 both.",
        ) from None
    return [by_rank.get(rank, 0) for rank in range(count)]


def _stream(text: str) -> int:
    number = int(text)
    if not 0 <= number <= _BOTH:
        raise ValueError(text)
    return number


def _filter(text: str, count: int) -> set[int]:
    try:
        return {int(part) for part in text.split(",")} if text else set(range(count))
    except ValueError:
        raise UsageError(f"--local-ranks-filter {text!r} is no list of local ranks", "Write 0,1,2.") from None
