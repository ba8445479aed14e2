"""The lines of the script, from the profiler's tree of events: also where torch has let go of some names."""

from types import SimpleNamespace

from distdbg.worker.profile.events import Lines

OURS = "distdbg/worker/profile/profiler.py"


class Gone:
    """A frame whose name lies in memory that is something else by now."""

    line_number = 3

    @property
    def file_name(self):
        return b"\xdb\x04\xff".decode()


def call(file, line, *, below=(), caller=None):
    fields = SimpleNamespace(caller=caller or SimpleNamespace(file_name=file, line_number=line), callsite=None)
    return SimpleNamespace(extra_fields=fields, start_time_ns=1000, end_time_ns=3000, start_tid=7, children=list(below))


def test_a_name_that_is_no_text_costs_its_own_line_alone(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("")
    tree = [call("", 0, caller=Gone(), below=[call(str(script), 12)]), call(OURS, 90)]
    lines = Lines(SimpleNamespace(experimental_event_tree=lambda: tree))
    *_, last = lines.events(pid=1, base_ns=0)
    assert last["args"] == {"file": str(script), "line": 12} and (last["ts"], last["dur"]) == (1.0, 2.0)
    assert lines.missing == ""
