"""py-spy's text, as it is really printed (0.4.3), read back."""

from distdbg.evidence.frames import Activity
from distdbg.evidence.stacks.stack_texts import is_pyspy_text, read_pyspy_text
from distdbg.evidence.stacks.threads import main_thread, read_threads

TEXT = """Process 15971: /venv/bin/python s.py
Python v3.11.7 (/root/.pyenv/versions/3.11.7/bin/python3.11)

Thread 15971 (idle): "MainThread"
    step (train.py:31)
        Arguments:
            x: "a (b.py:3)"
    <module> (train.py:7)
Thread 15972 (active+gil): "loader (x) "q""
    f (pkg/data.py:3)
    Thread.run (threading.py:982)
    all_reduce (torch/distributed/distributed_c10d.py:3252)
    c10d::Reducer::finalize_backward() (libtorch_cpu.so)

--------------------------------------------------------------------------------
Process 15991: /venv/bin/python s.py
Python v3.11.7 (/root/.pyenv/versions/3.11.7/bin/python3.11)
Parent Process 15971: /venv/bin/python s.py

Thread 15991 (idle): "MainThread"
    f (s.py:3)
"""


def test_threads_of_it_and_of_its_children():
    threads = read_threads(read_pyspy_text(TEXT.split("\n")))
    assert [(t.pid, t.os_id, t.name, t.active, t.holds_gil) for t in threads] == [
        (15971, 15971, "MainThread", False, False),
        (15971, 15972, 'loader (x) "q"', True, True),
        (15991, 15991, "MainThread", False, False),
    ]
    main = main_thread(threads, 15971)
    assert [str(f) for f in main.frames] == ["train.py:31 in step", "train.py:7 in <module>"]


def test_short_names_of_the_library_are_not_the_users():
    frames = read_threads(read_pyspy_text(TEXT.split("\n")))[1].frames
    assert [(f.function, f.users) for f in frames[:3]] == [("f", True), ("Thread.run", False), ("all_reduce", False)]
    assert frames[2].activity is Activity.COLLECTIVE
    assert frames[3].native


def test_what_is_no_such_text():
    assert is_pyspy_text(TEXT)
    for other in ("", "Process started\nThread", "Process 12: x\nnothing more", "hello\n" + TEXT):
        assert not is_pyspy_text(other)
    assert list(read_pyspy_text(["    step (train.py:31)"] * 3)) == []
