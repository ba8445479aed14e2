"""What gdb 13 prints of a Python process; frames of Python by gdb's extension of CPython, and by py-bt."""

from distdbg.evidence.stacks.gdb_text import is_gdb_text, read_gdb_text
from distdbg.evidence.stacks.threads import main_thread, read_threads

ATTACHED = """[New LWP 4243]
[Thread debugging using libthread_db enabled]
0x00007fec3699a545 in __GI___poll (fds=0x7f, nfds=1) at ../sysdeps/unix/sysv/linux/poll.c:29
"""
LISTED = """
Thread 2 (Thread 0x7fec3660b6c0 (LWP 4243) "pt_nccl_watchdg"):
#0  0x00007fec36950f7b in pthread_cond_timedwait@@GLIBC_2.3.2 () from /lib64/libpthread.so.0
#1  0x00007fb090db0b85 in c10d::ProcessGroupNCCL::watchdogHandler(std::function<void ()>) (this=0x5)
    at /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1999
#2  0x00007fec369d48ec in clone3 () at ../sysdeps/unix/sysv/linux/x86_64/clone3.S:81

Thread 1 (Thread 0x7fec368ca040 (LWP 4242) "python"):
#0  0x00007fec3699a545 in __GI___poll (fds=0x7f, nfds=1) at ../sysdeps/unix/sysv/linux/poll.c:29
#1  Frame 0x55d0, for file /work/me/train.py, line 88, in wait_for (self=<Net(a=(1, 2)) at remote 0x7f>, n=3)
#2  0x00000000004f in _PyEval_EvalFrameDefault (f=Frame 0x55e0, for file /work/me/train.py, line 12, in main ())
    at Python/ceval.c:4233
#3  0x0000000000627bd1 in _start ()
[Inferior 1 (process 4242) detached]
"""


def threads_of(text):
    assert is_gdb_text(text)
    return read_threads(read_gdb_text(text.split("\n")))


def test_all_threads_of_a_process():
    watchdog, main = threads_of(ATTACHED + LISTED)
    assert (watchdog.pid, watchdog.os_id, watchdog.name) == (4242, 4243, "pt_nccl_watchdg")
    assert [frame.function for frame in watchdog.frames] == [
        "pthread_cond_timedwait", "c10d::ProcessGroupNCCL::watchdogHandler", "clone3",
    ]  # fmt: skip
    assert (watchdog.frames[1].line, watchdog.frames[0].file) == (1999, "/lib64/libpthread.so.0")
    assert main == main_thread((watchdog, main), 4242)
    assert [str(frame) for frame in main.user_frames] == [
        "/work/me/train.py:88 in wait_for", "/work/me/train.py:12 in main",
    ]  # fmt: skip
    assert all(frame.native for frame in watchdog.frames)


def test_several_processes_in_one_file():
    found = threads_of(LISTED + LISTED.replace("424", "525"))
    assert [thread.pid for thread in found] == [4242, 4242, 5252, 5252]
    named = threads_of(
        "Attaching to process 7\n" + LISTED + "Attaching to process 8\n(gdb) bt\n#0  0x1 in f () from /lib/a.so\n"
    )
    assert [thread.pid for thread in named] == [7, 7, 8]


def test_threads_that_were_chosen_one_by_one_are_of_one_process():
    text = "".join(
        f"[Switching to thread {n} (Thread 0x7f (LWP {40 + n}))]\n(gdb) bt\n#0  0x1 in f{n} () from /lib/a.so\n"
        for n in (1, 2, 3)
    )
    assert [(thread.pid, thread.os_id) for thread in threads_of(text)] == [(41, 41), (41, 42), (41, 43)]


def test_py_bt():
    (main,) = threads_of(
        "(gdb) py-bt\nTraceback (most recent call first):\n  <built-in method acquire of lock>\n"
        '  File "/work/me/train.py", line 88, in step\n    lock.acquire()\n'
        '  File "/work/me/train.py", line 9, in <module>\n'
    )
    assert [(frame.function, frame.line) for frame in main.frames] == [("step", 88), ("<module>", 9)]


def test_other_texts_are_none():
    for text in ("#0 is a comment\n", "Thread 1 started\n", "frame #0: c10::Error (0x1 in /lib/a.so)\n", "", "bt\n"):
        assert not is_gdb_text(text)
