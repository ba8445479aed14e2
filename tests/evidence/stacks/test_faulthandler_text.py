"""The text that faulthandler prints, and with it torch's worker server."""

import faulthandler
import tempfile
import threading

from distdbg.evidence.stacks.crash import read_faulthandler_text
from distdbg.evidence.stacks.threads import judged_thread, read_threads


def test_stacks_of_this_process_have_a_main_thread():
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        done.set()
        thread.join()
        file.seek(0)
        text = file.read()
    for pid in (77, 0):
        threads = read_threads(read_faulthandler_text(text.split("\n"), pid))
        main = judged_thread(threads, pid)
        assert len(threads) >= 2 and [t.main for t in threads].count(True) == 1
        assert main.frames[0].function == "test_stacks_of_this_process_have_a_main_thread"
        assert main.frames[0].file == __file__ and main.frames[0].line


def test_main_thread_is_unknown_if_the_oldest_threads_are_left_out():
    text = 'Thread 0x02 (most recent call first):\n  File "a.py", line 3 in wait\n...\n'
    threads = read_threads(read_faulthandler_text(text.split("\n"), 5))
    assert [t.frames[0].line for t in threads] == [3] and judged_thread(threads, 5) is None
