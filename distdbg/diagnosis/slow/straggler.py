"""Detect a rank that makes the others wait again and again: the job runs at the pace of that rank."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from distdbg.diagnosis.failures.findings import who
from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.rules import rule
from distdbg.diagnosis.slow._profiles import cost, is_costly, starves
from distdbg.diagnosis.slow._profiles import profile_finding as found_in
from distdbg.diagnosis.timeline.arrivals import Late, Longer, late_devices, late_ranks, longer_phases, nobody_waits
from distdbg.diagnosis.timeline.groups import groups
from distdbg.diagnosis.timeline.judge import stand
from distdbg.diagnosis.timeline.seen import READS_DEVICE
from distdbg.diagnosis.waits.hang import hang_of
from distdbg.evidence.dump import Dump, RankDump
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.stacks.late import Sampled, sampled
from distdbg.evidence.trace.profile import at
from distdbg.evidence.trace.slow_rank import SlowRanks, slow_ranks
from distdbg.model import Citation, Finding

#: What the phases of the heartbeat page mean to people.
_PHASES = {"data": "waiting for data", "saving": "saving a checkpoint", "computing": "computing before its backward",
           "other": "its own code between the steps", "forward": "its forward", "backward": "its backward",
           "optimizer": "its optimizer's step"}  # fmt: skip
_GERUNDS = {"data", "saving", "computing"}
#: What the parts of a profiled step do.
_PARTS = {**_PHASES, "data wait": "its wait for data", "preparing": "what it does between its batch and its forward",
          "other": "its own code beside forward, backward and optimizer"}  # fmt: skip
#: Of the time from a dump's first collective to the end of the run. A dump that covers less is a sample of the start:
#: the phases of the ranks, which are of the whole run, have to agree with it.
_SHARE_OF_TIME_SEEN = 0.1
#: In these the host has work of its own, or waits for that of others; elsewhere it may wait for its GPU.
_BESIDE_THE_GPU = {"data", "saving"}
#: Of libraries there is no line: Lightning's `to_item`, torch's `synchronize`.
_READING_FUNCTION = re.compile(r"(?:^|_)(?:item|tolist|synchronize)$")


@rule("straggler", needs=("dump", "profiles", "rank.phases"))
def straggler(evidence: RunEvidence) -> Iterable[Finding]:
    hang = hang_of(evidence)
    if hang is not None and hang.stands:
        return  # who is last then is last for good
    apart = _apart(evidence)
    longer = [] if apart else longer_phases({record.rank: record.phases for record in evidence.ranks})
    longer = [phase for phase in longer if not _waits_for_its_gpu(evidence, phase)]
    late = _late(evidence, evidence.dump) if evidence.dump is not None else None
    if late is not None and evidence.dump is not None and _is_outdated(evidence, evidence.dump, late):
        late = late if any(phase.rank in late.ranks for phase in longer) else None
    slow = None if apart else slow_ranks(evidence.profiles)
    if late is not None and evidence.dump is not None:
        found = [_by_arrivals(evidence, evidence.dump, late, [p for p in longer if p.rank in late.ranks])]
    else:
        found = [_by_phase(evidence, phase) for phase in longer]
    for one in found:
        same = slow is not None and set(one.ranks) <= set(slow.ranks)
        yield replace(one, cause=f"{one.cause} {_in_profile(slow)}".strip()) if same and slow is not None else one
    if slow is not None and not found and not _explained_by_another(slow):
        yield _by_profile(evidence, slow)


def _apart(evidence: RunEvidence) -> bool:
    """Ranks without a process group are independent runs: none waits for another."""
    together = any(record.initialised for record in evidence.ranks)
    talked = any(profile.parts.get("communication") for profile in evidence.profiles)
    return bool(evidence.ranks) and not together and not talked


def _late(evidence: RunEvidence, dump: Dump) -> Late | None:
    """The late ranks of the group that loses most time; by devices where every host came in time."""
    records = {record.rank: record for record in evidence.ranks}
    where = {record.rank: record.host for record in evidence.ranks}
    known = groups(dump, records)
    found = [late for group in known if (late := late_ranks(group, where)) is not None]
    found = [late for late in found if not (_alone_reads_its_gpu(dump, late) or nobody_waits(late, dump.signatures))]
    found = found or [late for group in known if (late := late_devices(group, dump.signatures)) is not None]
    return max(found, key=lambda late: late.share, default=None)


def _is_outdated(evidence: RunEvidence, dump: Dump, late: Late) -> bool:
    """Return whether the run went on after the dump for longer than the time that the dump's collectives cover."""
    looks = [look.t for node in evidence.nodes for course in node.courses.values() for look in course[-1:]]
    ends = [record.ended for record in evidence.ranks if record.ended is not None]
    newest = max((*looks, *ends), default=dump.t)
    return late.span_s < _SHARE_OF_TIME_SEEN * (late.span_s + newest - dump.t)


def _waits_for_its_gpu(evidence: RunEvidence, found: Longer) -> bool:
    """Whether only this rank reads a value: then it waits there for all GPUs, and does not delay the others."""
    if found.phase in _BESIDE_THE_GPU or not _on_gpu(evidence, found.rank):
        return False
    stacks = sampled(evidence.nodes, found.rank, found.phase)
    return stacks is not None and _reads(stacks.source, stacks.innermost)


def _alone_reads_its_gpu(dump: Dump, late: Late) -> bool:
    """The same in a dump: NCCL's recorder says when a host queued a collective, not when its GPU began it."""
    there = [rank for rank in late.group.ranks if rank in dump.ranks]
    return {rank for rank in there if _reads_its_gpu(dump.ranks[rank], dump)} == set(late.ranks)


def _reads_its_gpu(had: RankDump, dump: Dump) -> bool:
    main = had.judged(had.last)
    if had.recorder is None or not had.recorder.on_device or main is None or not main.user_frames:
        return False
    line = main.user_frames[0]
    return _reads(dump.line(line.file, line.line), main.frames[0].function)


def _reads(source: str, function: str) -> bool:
    return READS_DEVICE.search(source) is not None or _READING_FUNCTION.search(function) is not None


def _on_gpu(evidence: RunEvidence, rank: int) -> bool:
    looks = (look for node in evidence.nodes for look in node.courses.get(rank, ()))
    return any(look.gpu_used is not None for look in looks)


def _by_arrivals(evidence: RunEvidence, dump: Dump, late: Late, longer: list[Longer]) -> Finding:
    if late.side == "device":
        return _by_devices(evidence, dump, late)
    one = len(late.ranks) == 1
    phase = f", in {_phase(longer[0].phase)}" if longer else ""
    stood = " ".join(_stood(sampled(evidence.nodes, p.rank, p.phase)) for p in longer[:2]).strip()
    error = f" Clocks of the nodes are known to {1000 * late.clock_error_s:.1f} ms." if late.clock_error_s else ""
    return build_finding(
        "straggler",
        late.ranks,
        f"{who(evidence, late.ranks)} {'is' if one else 'are'} last by {_time(late.late_s)} in {late.times} of "
        f"{late.collectives} collectives of {late.group.title}: {late.share:.0%} of the time is lost to "
        f"{'it' if one else 'them'}{phase}",
        f"{_places(evidence, dump, late.ranks)}{error} {stood}".strip(),
        confidence="likely" if late.clock_error_s or late.side == "host" else "certain",
        evidence=(_stack(dump.ranks[rank]) for rank in late.ranks[:3]),
        first_seen=dump.t or None,
        side=late.side,
    )


def _by_devices(evidence: RunEvidence, dump: Dump, late: Late) -> Finding:
    one = len(late.ranks) == 1
    return build_finding(
        "straggler",
        late.ranks,
        f"the device{'' if one else 's'} of {who(evidence, late.ranks)} {'is' if one else 'are'} last by "
        f"{_time(late.late_s)} in {late.times} of {late.collectives} collectives of {late.group.title}: "
        f"{late.share:.0%} of the time is lost to {'it' if one else 'them'}",
        "Each host has enqueued them in time. These devices take the shortest in a collective, since the others "
        "wait in it for them: they compute more, or more slowly.",
        confidence="certain",
        remedy="Compare clocks, temperature and power of these devices with the others' (`distdbg top`); where the "
        "devices are alike, compare how much each rank computes.",
        evidence=(
            Citation(dump.ranks[rank].last.recorder_path, None, f"rank {rank}, duration_ms") for rank in late.ranks[:3]
        ),
        first_seen=dump.t or None,
        side=late.side,
    )


def _places(evidence: RunEvidence, dump: Dump, ranks: Iterable[int]) -> str:
    """Where the ranks were in the dump, unless in a collective: then the others were waiting."""
    records = {record.rank: record for record in evidence.ranks}
    standings = [stand(dump.ranks[rank], records.get(rank), dump) for rank in ranks]
    found = [
        f"While the others waited, rank {standing.rank} was seen at {standing.frame.short}"
        f"{f': {line}' if (line := dump.line(standing.frame.file, standing.frame.line)) else ''}."
        for standing in standings
        if standing.frame is not None and not standing.doing.waits_for_ranks
    ]
    return " ".join(found[:3])


def _stack(had: RankDump) -> Citation:
    return Citation(had.first.threads_path or had.first.recorder_path, None, f"rank {had.rank}")


def _by_phase(evidence: RunEvidence, found: Longer) -> Finding:
    record = next(r for r in evidence.ranks if r.rank == found.rank)
    stacks = sampled(evidence.nodes, found.rank, found.phase)
    where = f", at {stacks.frame.short}" if stacks else ""
    unseen = stacks is None and found.phase not in _BESIDE_THE_GPU and _on_gpu(evidence, found.rank)
    perhaps = (
        "If it alone reads a value from its GPU there, no rank waits for it: no stack shows that." if unseen else ""
    )
    median_of = f"The median of {record.phases.get('windows', 0)} windows of some steps each."
    doing = _phase(found.phase) if found.phase in _GERUNDS else f"in {_phase(found.phase)}"
    return build_finding(
        "straggler",
        (found.rank,),
        f"rank {found.rank} spends {found.share:.0%} of its time {doing}, the others "
        f"{found.usual:.0%}: they wait for it in {_phase(found.waits_in)}{where}",
        f"{median_of} {_stood(stacks) or perhaps}".strip(),
        confidence="possible" if unseen else "likely",
        evidence=(
            Citation(record.exit_path, None, quote=f'"phases": {dict(record.phases)}'),
            *(stacks.citations if stacks else ()),
        ),
    )


def _stood(stacks: Sampled | None) -> str:
    """Where the rank was sampled while the others had finished that phase and waited."""
    if stacks is None:
        return ""
    source = f": {stacks.source}" if stacks.source else ""
    times = f"{stacks.times} of {stacks.samples} samples" if stacks.samples > 1 else "the one sample"
    if stacks.for_ms <= stacks.usual_ms:  # several visits a step, none of them longer than all of the others' together
        return f"In that phase it was at {stacks.frame.short}{source} ({times})."
    return (
        f"While it was late, it was at {stacks.frame.short}{source} ({times}; {stacks.for_ms:.0f} ms into "
        f"that phase, which takes the others {stacks.usual_ms:.0f} ms a step)."
    )


def _by_profile(evidence: RunEvidence, slow: SlowRanks) -> Finding:
    one = len(slow.ranks) == 1
    return found_in(
        evidence,
        "straggler",
        [slow.worst, *(p for p in evidence.profiles if p.rank in slow.ranks and p is not slow.worst)],
        summary=f"the others wait for {'it' if one else 'them'} in each step, {cost(slow.worst, slow.us)}, "
        f"which {'it is' if one else 'they are'} longer in {_PARTS[slow.phase]}{_line(slow)}",
        cause=_in_profile(slow),
        quote=f"{slow.phase} {slow.worst.parts[slow.phase] / 1000:.2f} ms, the others {slow.usual_us / 1000:.2f} ms",
    )


def _line(slow: SlowRanks) -> str:
    return f", at {at(slow.line.file, slow.line.function, [slow.line.line])}" if slow.line and slow.line.line else ""


def _in_profile(slow: SlowRanks) -> str:
    """What a profile adds: the line."""
    spent = f"In the profile {slow.worst.who} spends {slow.worst.parts[slow.phase] / 1000:.2f} ms of a step in "
    spent += f"{_PARTS[slow.phase]}, the others {slow.usual_us / 1000:.2f} ms."
    if slow.line is None:
        return f"{spent} No single line of the script explains it."
    us = f"{slow.line.us / 1000:.2f} ms a step, on the others {slow.line_usual_us / 1000:.2f} ms"
    if not slow.line.line:
        return f"{spent} What {slow.line.function} ({slow.line.file.rpartition('/')[2]}) does by itself takes {us}."
    return f"{spent} The line {at(slow.line.file, slow.line.function, [slow.line.line])} takes {us}."


def _explained_by_another(slow: SlowRanks) -> bool:
    """A fault that only these ranks have, and that explains it, is a finding of its own, with its line."""
    if slow.phase == "data wait" and starves(slow.worst) and not any(map(starves, slow.others)):
        return True
    usual = {(costly.kind, costly.lines): costly.gain_us for p in slow.others for costly in p.costly}
    return any(
        is_costly(slow.worst, costly.gain_us)
        and costly.gain_us - usual.get((costly.kind, costly.lines), 0.0) >= slow.us / 2
        for costly in slow.worst.costly
    )


def _phase(name: str) -> str:
    return _PHASES.get(name, name)


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.1f} ms"
