"""Decides where one rank stands: from its main thread's stack, the state of its process and its flight recorder
together, never from one of them alone. Two looks tell looping from blocked. What is not seen is unknown, and says why.
"""

from __future__ import annotations

import re
from dataclasses import replace

from distdbg.diagnosis.timeline import host_side
from distdbg.diagnosis.timeline.seen import CHILD, MANY, READS_DEVICE, Seen, parts
from distdbg.diagnosis.timeline.standing import Doing, Standing
from distdbg.evidence.dump import Dump, RankDump
from distdbg.evidence.frames import Activity, Origin
from distdbg.evidence.native_frames import NativeWait, outermost_wait
from distdbg.evidence.ops import COLLECTIVE, RECEIVE, SEND, of_kind
from distdbg.evidence.run import RankRecord
from distdbg.evidence.stacks.threads import Frame
from distdbg.plain_text import whole_number
from distdbg.protocol.dump import SLEEP

_TRANSFERS, _COLLECTIVES = of_kind(SEND, RECEIVE), of_kind(COLLECTIVE)
_NUMBER = re.compile(r"\d{1,9}")
_WAIT_LINE = re.compile(r"\.wait\(|\.result\(|\.synchronize\(|wait_tensor\(")
#: A native function that waits for one of these may wait for other ranks.
_NATIVE_COLLECTIVE = {NativeWait.RANKS, NativeWait.GROUP_SETUP, NativeWait.GROUP_END, NativeWait.DEVICE}


def stand(rank: RankDump, record: RankRecord | None, dump: Dump, *, delegates: bool = True) -> Standing:
    """Never raises; a rank of which nothing was had is UNKNOWN.

    With `delegates`, a main thread that waits for a thread of its own stands where that one does, if that one waits
    for ranks.
    """
    return _judge(Seen(rank, record, dump), delegates=delegates)


def _judge(seen: Seen, *, delegates: bool) -> Standing:
    if not seen.state or seen.state in ("Z", "X"):
        return seen.stands(Doing.ENDED, "has ended")
    if seen.stopped:
        return seen.stands(Doing.STOPPED, "is stopped (state T: by SIGSTOP, a debugger or the batch system)")
    if seen.main is None:
        return _without_a_stack(seen)
    found = _ended_script(seen) or _communication(seen) or host_side.standing(seen)
    found = (
        _gil(seen, found)
        or _hook(seen, found)
        or (_delegated(seen, found) if delegates else None)
        or _watched(seen, found)
        or found
    )
    ahead = seen.runs_ahead or (seen.device and found.doing is Doing.NATIVE)
    if ahead and host_side.may_wait_for_device(seen, found):
        return seen.stands(Doing.COLLECTIVE, "waits, probably for its device,", "wait", sure=False)
    if not seen.open and (call := host_side.device_call(seen, found)):
        return _own_device(seen, call)
    return found


def _own_device(seen: Seen, call: str) -> Standing:
    """No operation of a group is known to be open: a kernel or a copy of this rank alone does not finish."""
    if seen.records_nothing:
        standing = seen.stands(Doing.COLLECTIVE, f"waits for its device in {call}", "wait", sure=False)
    else:
        place = f" at {host_side.place(seen.users[0])}" if seen.users else ""
        standing = seen.stands(Doing.DEVICE, f"waits for its device in {call}{place}", sure=False)
    return replace(standing, native_call=call)


def _without_a_stack(seen: Seen) -> Standing:
    because = seen.rank.last.missing.get("stacks", "no stack was taken")
    if seen.transfers:
        return seen.stands(Doing.TRANSFER, "waits in a send or recv, by its flight recorder", sure=False)
    if seen.open:
        return seen.stands(Doing.COLLECTIVE, "waits in a collective, by its flight recorder", sure=False)
    return Standing(seen.rank.rank, Doing.UNKNOWN, f"stands somewhere unknown: {because}", because=because)


def _ended_script(seen: Seen) -> Standing | None:
    """The main thread has left the script: it waits for threads that are no daemons, or no Python runs any more."""
    record = seen.record
    raised = record is not None and any(e.uncaught for e in record.exceptions)
    if seen.main is not None and not seen.main.frames and record is not None and record.script_ended is not None:
        how = " by an exception" if raised else ""
        return seen.stands(
            Doing.RAISED if raised else Doing.NATIVE, f"has ended its script{how}, and its process has not ended"
        )
    if not any(f.activity is Activity.SHUTDOWN for f in seen.library):
        return None
    others = seen.other_threads(seen.rank.pid)
    where = f" (thread {others[0].name or others[0].os_id} at {others[0].user_frames[0]})" if others else ""
    if raised:
        return seen.stands(Doing.RAISED, f"has ended its script by an exception, and a thread keeps it alive{where}")
    return seen.stands(Doing.LOCK, f"has ended its script and waits for a thread that does not end{where}")


# -- for other ranks --------------------------------------------------------------------------------------------------


def _communication(seen: Seen) -> Standing | None:
    found = _in_torch(seen, seen.library)
    return found if found is not None else _silent_communication(seen)


def _in_torch(seen: Seen, library: tuple[Frame, ...]) -> Standing | None:
    """By the frames of torch.distributed, which the user's innermost line has called."""
    activities = {f.activity for f in library}
    if Activity.PICKLING in activities:
        return None
    if Activity.GROUP_SETUP in activities:
        forming = [f for f in library if f.activity is Activity.GROUP_SETUP]
        again = any(f.function in ("new_group", "_new_group_with_tag") for f in forming)
        function = "new_group" if again else "init_process_group"
        address = _address(library)
        phrase = f"waits in {function}{f' (at {address})' if address else ''}"
        found = seen.stands(Doing.FORMING, phrase, function)
        return replace(found, members=_members(library), meets_at=address, group_size=_group_size(library))
    c10d = [f for f in library if f.activity is Activity.COLLECTIVE]
    names = frozenset(f.function for f in c10d)
    if names & _TRANSFERS:
        inner = next(f for f in c10d if f.function in _TRANSFERS)
        return _transfer(seen, inner.function, _peer(inner))
    if "batch_isend_irecv" in names:
        return _transfer(seen, "batch_isend_irecv", None)
    if c10d and _only_enqueues(seen, names):
        function = c10d[-1].function
        return seen.stands(Doing.NATIVE, f"blocks in {function}, which its device could not hold up", function)
    return _collective(seen, c10d[-1].function) if c10d else None


def _only_enqueues(seen: Seen, names: frozenset[str]) -> bool:
    """It calls a collective of a device, in a group that is connected, and nothing is open there: such a call returns
    at once, unless the driver or a lock of the process group does not let it.

    Not without the call that says which group that is: a group that is only connected by its first collective is in
    no recorder before, and its members wait there on the host.
    """
    recorder, calls = seen.rank.recorder, seen.rank.calls
    if recorder is None or seen.open or not calls or calls[-1].operation not in names & _COLLECTIVES:
        return False
    logs = [log for log in recorder.groups.values() if calls[-1].group == ("" if log.name == "0" else log.name)]
    return any(log.on_device and log.sequence for log in logs)


def _silent_communication(seen: Seen) -> Standing | None:
    """Waits that leave no frame of torch.distributed: backward, Work.wait(), a synchronisation of the device."""
    if seen.call in host_side.ON_FILE | CHILD | SLEEP or seen.store_call is not None:
        return None
    if transfers := seen.native_waits & {NativeWait.SEND, NativeWait.RECEIVE}:
        return _transfer(seen, "send" if NativeWait.SEND in transfers else "recv", None)
    if seen.unseen and (native_call := seen.native_call) is not None and native_call[0].of_device:
        return _at_device(seen, *native_call)
    native = not seen.native_waits.isdisjoint(_NATIVE_COLLECTIVE)
    torch_waits = NativeWait.BACKWARD in seen.native_waits or _torch_waits(seen)
    if (native and (seen.open or seen.unrecorded)) or (seen.open and torch_waits):
        return _collective(seen, _function(seen))
    if seen.unrecorded and _function(seen) != "wait" and _torch_waits(seen):
        return _collective(seen, _function(seen), sure=False)
    return _by_the_line(seen) if seen.device or not seen.native_frames else None


def _at_device(seen: Seen, wait: NativeWait, call: str) -> Standing:
    """A debugger's stack shows that the host waits for its device, and not in which operation the device is."""
    aborting = [
        thread for thread in seen.threads
        if thread is not seen.main
        and (other := outermost_wait((f.function, f.library) for f in thread.frames if f.native)) is not None
        and other[0] is NativeWait.GROUP_END
    ]  # fmt: skip
    doubt = "probably " if wait is NativeWait.DRIVER else ""
    phrase = f"waits {doubt}for its device in {call}"
    if aborting:
        phrase += f", while its {aborting[0].label} ends a communicator of NCCL"
    return replace(seen.stands(Doing.COLLECTIVE, phrase, "wait", sure=False), native_call=call)


def _by_the_line(seen: Seen) -> Standing | None:
    """The source has to do where the C frames were not taken: `handle.wait()`, `loss.item()`; not where the wait is
    one of Python's own, as `event.wait()`. A transfer is only told by the calls: gloo records none.
    """
    if seen.locks:
        return None
    waits = _WAIT_LINE.search(seen.line) is not None or _in_distributed(seen)
    if seen.open and (waits or (seen.device and READS_DEVICE.search(seen.line))):
        return _collective(seen, "wait", sure=False)
    if waits and seen.call == "futex" and seen.rank.calls and seen.rank.calls[-1].operation in _TRANSFERS:
        return _transfer(seen, "wait", None)
    return None


def _in_distributed(seen: Seen) -> bool:
    """Some module of torch.distributed was left for C++: a pipeline's schedule waits so for its neighbours."""
    return bool(seen.library) and seen.library[0].activity.of_torch_distributed


def _torch_waits(seen: Seen) -> bool:
    """Without C frames: torch's own Python code was left for C++, which sleeps."""
    if (seen.native_frames and not seen.device) or seen.locks:
        return False
    torchs = any(f.origin is Origin.TORCH for f in seen.library)
    return torchs and (seen.call == "futex" or seen.device or seen.idle)


def _function(seen: Seen) -> str:
    activities = {f.activity for f in seen.library}
    if Activity.AUTOGRAD in activities:
        return "backward"
    return "forward" if Activity.DATA_PARALLEL in activities else "wait"


def _collective(seen: Seen, function: str, *, sure: bool = True) -> Standing:
    return seen.stands(Doing.COLLECTIVE, f"waits in {function}", function, sure=sure)


def _transfer(seen: Seen, function: str, peer: int | None) -> Standing:
    return seen.stands(Doing.TRANSFER, f"waits in {function}", function, peer=peer)


def _peer(frame: Frame) -> int | None:
    """From the variables of send or recv: only where they were given as global ranks."""
    for name in ("src", "dst"):
        if (peer := whole_number(frame.variables.get(name, ""))) is not None:
            return peer
    return None


def _address(library: tuple[Frame, ...]) -> str:
    """Where the ranks meet, from the variables of torch's function that connects to the store."""
    for frame in library:
        host, port = frame.variables.get("hostname", "").strip('"'), frame.variables.get("port", "")
        if host and port.isdecimal():
            return f"{host}:{port}"
    return ""


def _group_size(library: tuple[Frame, ...]) -> int | None:
    told = next((value for frame in library if (value := frame.variables.get("group_size", ""))), "")
    return int(told) if _NUMBER.fullmatch(told) else None


def _members(library: tuple[Frame, ...]) -> tuple[int, ...]:
    """Who makes the group, from the variables of torch's function that connects them. Not where a communicator is
    split, which takes all ranks of the one that it is split from, nor where py-spy has cut a long list short."""
    for frame in library:
        told = frame.variables.get("global_ranks_in_group", "")
        if frame.variables.get("split_from") == "None" and "..." not in told:
            return tuple(int(rank) for rank in _NUMBER.findall(told))
    return ()


# -- through a thread of its own --------------------------------------------------------------------------------------


def _gil(seen: Seen, own: Standing) -> Standing | None:
    """Another thread of the rank is blocked in C and keeps the GIL: no line of Python runs until that call returns.

    A thread that computes, and so has the GIL at both looks, gives it away in between.
    """
    if seen.holds_gil or (own.doing.waits_for_ranks and NativeWait.GIL not in seen.native_waits):
        return None
    for thread in seen.other_threads(seen.rank.pid):
        later = next((t for t in seen.rank.last.threads if (t.pid, t.os_id) == (thread.pid, thread.os_id)), thread)
        if all(t.holds_gil and not t.active for t in (thread, later)) and later.frames == thread.frames:
            name, users = thread.label, thread.user_frames
            phrase = f"waits for the GIL, which its {name} keeps in a C function,"
            return replace(
                own,
                doing=Doing.NATIVE,
                phrase=phrase,
                frame=users[0],
                frames=users,
                function="",
                thread=name,
                sure=True,
            )
    return None


def _hook(seen: Seen, own: Standing) -> Standing | None:
    """The main thread waits for autograd's engine. Of a model on a GPU the engine's own thread runs the user's hooks.

    Python has not begun that thread.
    """
    if own.doing.waits_for_ranks or not any(f.activity is Activity.AUTOGRAD for f in seen.library):
        return None
    for thread in seen.other_threads(seen.rank.pid):
        if not any(f.activity is Activity.THREAD_START for f in thread.frames):
            hook = seen.at(thread)
            found = _in_torch(hook, hook.library) or host_side.standing(hook)
            return replace(found, phrase=f"{found.phrase} in a hook of its backward", thread=thread.label, sure=False)
    return None


def _delegated(seen: Seen, own: Standing) -> Standing | None:
    """The main thread waits for a thread that waits for ranks, a checkpoint in the background or an executor, or
    watches one that trains."""
    waits = own.doing is Doing.LOCK or (seen.event_loop and seen.call in MANY)
    if not waits and not (_watches(seen, own) and _one_group(seen)):
        return None
    for thread in seen.other_threads(seen.rank.pid):
        library, users = parts(thread.frames)
        found = _in_torch(seen, library)
        if found is not None and (seen.open or (waits and found.doing is not Doing.COLLECTIVE)):
            name = thread.label
            return replace(
                found,
                phrase=f"waits for its {name}, which {found.phrase}",
                frame=users[0],
                frames=(*users, *seen.users),
                sure=False,
                thread=name,
            )
    return None


def _watched(seen: Seen, own: Standing) -> Standing | None:
    """The main thread watches the one that makes the calls of torch.distributed, and that one stands elsewhere."""
    if not seen.rank.calls or not _watches(seen, own) or _called_by(seen, seen.users):
        return None
    for thread in seen.other_threads(seen.rank.pid):
        users = parts(thread.frames)[1]
        if _called_by(seen, users):
            phrase = f"watches its {thread.label}, which stands"
            return replace(own, phrase=phrase, frame=users[0], frames=users, sure=False)
    return None


def _called_by(seen: Seen, users: tuple[Frame, ...]) -> bool:
    """One of these functions has made the rank's newest call; py-spy has the class before a method's name."""
    last = seen.rank.calls[-1]
    names = {(frame.file, frame.function.rpartition(".")[2]) for frame in users}
    return (last.file, last.function.rpartition(".")[2]) in names


def _watches(seen: Seen, own: Standing) -> bool:
    """It sleeps or polls."""
    return own.doing in (Doing.PYTHON, Doing.IO) and seen.call in SLEEP | MANY | {"restart_syscall"}


def _one_group(seen: Seen) -> bool:
    """That was used: by the thread that is in it, since two would not share it."""
    recorder = seen.rank.recorder
    return seen.open and recorder is not None and len(recorder.groups) == 1
