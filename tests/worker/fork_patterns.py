"""A healthy script that starts processes in every common way. Each of them prints its descriptors and uses its files.

    fork_patterns.py [FOLDER]

It prints the same under plain torchrun and under `distdbg launch`: see test_forks.py.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import multiprocessing
import os
import pty
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable

METHODS = ("fork", "spawn", "forkserver")
SHOW_IN_OTHER_PROGRAM = "import runpy, sys; runpy.run_path(sys.argv[1])['show'](sys.argv[2])"
RANK = os.getpid()
#: Numbers of the rank that are open before the script has opened anything; none under plain torchrun.
UNKNOWN_NUMBERS: list[int] = []
REUSED = "reused-"


def open_numbers() -> list[int]:
    numbers = []
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            os.fstat(number)
        except OSError:
            continue  # the listing's own
        numbers.append(number)
    return sorted(numbers)


def describe_descriptor(number: int) -> str:
    status = os.fstat(number)
    kind = "socket" if stat.S_ISSOCK(status.st_mode) else "pipe" if stat.S_ISFIFO(status.st_mode) else "other"
    if stat.S_ISREG(status.st_mode):  # torch's shared memory has a random name and is removed
        kind = os.path.basename(os.readlink(f"/proc/self/fd/{number}")) if status.st_nlink else "removed"
    return f"{number}={kind}{'' if os.get_inheritable(number) else '/cloexec'}"


def show(label: str) -> None:
    """The descriptors of this process but for its standard streams, and the number of its threads."""
    hidden = UNKNOWN_NUMBERS if os.getpid() == RANK else []
    described = [describe_descriptor(number) for number in open_numbers() if number > 2 and number not in hidden]
    named = [text for text in described if REUSED not in text]
    say(f"{label}: {' '.join(named) or 'none'}, threads {len(os.listdir('/proc/self/task'))}")


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def in_child(work: Callable[[], object]) -> None:
    """Run it in a forked child, and wait."""
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    say(f"ended with {os.waitpid(pid, 0)[1]}")


def use_files(label: str, depth: int) -> None:
    """Open files and sockets, fork, and use them there: a number that somebody else closes raises."""
    with open(f"{label}-{depth}.txt", "w") as file, open(f"{label}-{depth}.more", "w") as more:
        ours, theirs = socket.socketpair()
        show(f"{label} {depth}")
        if depth:
            in_child(lambda: use_files(label, depth - 1))
        ours.sendall(b"x")
        say(f"{label} {depth} received {theirs.recv(1)!r}")
        for opened in (file, more):
            opened.write("written\n")
            opened.flush()
        ours.close()
        theirs.close()


def fork_in_thread() -> None:
    thread = threading.Thread(target=lambda: in_child(lambda: use_files("thread", 1)))
    thread.start()
    thread.join()


def inner_process(label: str, connection: socket.socket) -> None:
    show(label)
    connection.sendall(b"y")


def outer_process(outer: str, inner: str) -> None:
    ours, theirs = socket.socketpair()
    label = f"{inner} below {outer}"
    process = multiprocessing.get_context(inner).Process(target=inner_process, args=(label, ours))
    process.start()
    process.join()
    say(f"{label} ended with {process.exitcode}, received {theirs.recv(1)!r}")


def nest_multiprocessing() -> None:
    for outer in METHODS:
        for inner in METHODS:
            process = multiprocessing.get_context(outer).Process(target=outer_process, args=(outer, inner))
            process.start()
            process.join()
            say(f"{outer} ended with {process.exitcode}")


def pool_in_child() -> None:
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        pool.submit(use_files, "pool", 1).result()


def daemonise() -> None:
    """As daemons do: fork, a session of its own, fork again, close all numbers, open others."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.dup2(writer, 0)
        os.closerange(3, 4096)
        use_files("daemon", 2)
        os.write(0, b"done\n")
        os._exit(0)
    os.close(writer)
    os.wait()
    say(f"daemon: {os.read(reader, 16)!r}")
    os.close(reader)


def run_programs() -> None:
    command = [sys.executable, "-c", SHOW_IN_OTHER_PROGRAM, os.path.abspath(__file__)]
    with open("passed.txt", "w") as file:
        subprocess.run([*command, "plain"], check=True)
        subprocess.run([*command, "preexec"], preexec_fn=lambda: show("in preexec_fn"), check=True)
        subprocess.run([*command, "open"], preexec_fn=lambda: show("in another"), close_fds=False, check=True)
        subprocess.run([*command, "passed"], pass_fds=[file.fileno()], check=True)
        pid = os.posix_spawn(sys.executable, [*command, "posix_spawn"], os.environ)
        say(f"ended with {os.waitpid(pid, 0)[1]}")
        in_child(lambda: os.execv(sys.executable, [*command, "execv"]))
        os.system("ls /proc/self/fd | tr '\\n' ' '; echo")


def fork_with_terminal() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        show("forkpty")
        os._exit(0)
    say(f"from the terminal: {os.read(terminal, 4096)!r}")
    os.waitpid(pid, 0)
    os.close(terminal)


def import_torch_in_child() -> None:
    import torch.distributed  # noqa: F401
    from torch.utils.data import DataLoader

    show("a child that has imported torch")
    say(str([sum(batch).item() for batch in DataLoader(range(4), batch_size=2)]))


def load_in_workers() -> None:
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 1  # after the first batch a worker has a thread and descriptors of torch's, at any time

        def __getitem__(self, number: int) -> float:
            use_files(f"row-{number}", 1)
            return float(number)

    batches = list(DataLoader(Rows(), batch_size=1, num_workers=1, multiprocessing_context="fork"))
    say(str(torch.cat(batches).tolist()))


def reuse_unknown_numbers() -> None:
    """Close what was open at the start, and have files of its own under these numbers."""
    files = [open(f"{REUSED}{number}.txt", "w+") for number in UNKNOWN_NUMBERS]
    for file, number in zip(files, UNKNOWN_NUMBERS, strict=True):
        os.dup2(file.fileno(), number)
        file.close()


def check_reused_numbers() -> None:
    for number in UNKNOWN_NUMBERS:
        size = os.fstat(number).st_size
        if size:
            say(f"{os.readlink(f'/proc/self/fd/{number}')} has {size} bytes of somebody else's")


def train_with_reused_numbers() -> None:
    import torch
    import torch.distributed as dist

    reuse_unknown_numbers()
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    in_child(lambda: show("child of a rank with a process group"))
    in_child(lambda: in_child(check_reused_numbers))
    dist.broadcast(torch.ones(1), 0)
    dist.destroy_process_group()
    check_reused_numbers()


def fail_in_child() -> None:
    pid = os.fork()
    if pid == 0:
        if os.fork() == 0:
            raise ValueError("in the grandchild")
        os.wait()
        sys.exit(3)
    say(f"ended with {os.waitpid(pid, 0)[1]}")


if __name__ == "__main__":
    UNKNOWN_NUMBERS += [number for number in open_numbers() if number > 2]
    if sys.argv[1:]:
        os.chdir(sys.argv[1])
    atexit.register(lambda: say("at exit"))
    use_files("fork", 3)
    fork_in_thread()
    nest_multiprocessing()
    in_child(pool_in_child)
    daemonise()
    run_programs()
    fork_with_terminal()
    in_child(import_torch_in_child)
    load_in_workers()
    train_with_reused_numbers()
    fail_in_child()
