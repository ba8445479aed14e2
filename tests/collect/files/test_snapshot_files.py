"""Memory snapshots that somebody sends: none of them can execute anything, and each says why it gave nothing."""

import gzip
import os
import pickle
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from distdbg.collect.files import child_limits, plain_pickle, snapshot_child
from distdbg.collect.files.plain_pickle import UnreadablePickle
from distdbg.collect.files.snapshot_files import SnapshotUnreadable, read_snapshot_file, read_snapshots
from distdbg.errors import EvidenceUnreadable, NothingToAnalyse
from distdbg.evidence.memory.analysis import analyse
from distdbg.evidence.memory.trace import NotASnapshot
from tests.made_snapshot import MIB, Made, forward, snapshot, train

pytestmark = pytest.mark.slow  # a process for each of them

CORPUS = Path(__file__).parent / "snapshot_corpus"


def small():
    made = Made()
    train(made, 2, layers=1)
    return snapshot(made)


GOOD = pickle.dumps(small(), 4)


class Calls:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def deep_tuple():
    """An address whose hash descends three million levels: it takes the reader's stack."""
    return b"\x80\x04}(\x8c\x08segments]\x8c\x0ddevice_traces]](" + (
        b"}(\x8c\x06action\x8c\x05alloc\x8c\x04addr)" + b"\x85" * 3_000_000 + b"\x8c\x04sizeK\x01u"
    ) + b"eau."  # fmt: skip


def bomb():
    return gzip.compress(b"\x80\x04(" + b"N" * (256 << 20), 9)


def deep_stack():
    """One list of frames, as long as a small file can make it, and named by each of many events."""
    frames = [{"name": "f", "filename": "a.py", "line": 1}] * 40_000
    event = {"action": "alloc", "size": 1, "stream": 0, "frames": frames}
    return pickle.dumps({"segments": [], "device_traces": [[event | {"addr": n} for n in range(40_000)]]}, 4)


def wrong(**changes):
    made = small()
    made["device_traces"][0][3].update(changes)
    return pickle.dumps(made, 4)


def without(key):
    made = small()
    del made["device_traces"][0][3][key]
    return pickle.dumps(made, 4)


BAD = {
    "empty": (b"", "is empty"),
    "cut": (GOOD[:-30], "cut short"),
    "cut-gzip": (gzip.compress(GOOD)[:-60], "cut short"),
    "no-gzip": (b"\x1f\x8b\x08\x00" + b"a" * 50, "gzip"),
    "text": (b"hello\n", "no whole pickle"),
    "foreign": (pickle.dumps({"model": [1]}), "no memory snapshot"),
    "global": (b"\x80\x02cos\nsystem\n(X\x04\x00\x00\x00truetR.", "import 'os'.'system'"),
    "stack-global": (b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.", "import 'os'.'system'"),
    "reduce": (b"\x80\x04\x8c\x02os\x8c\x01a\x85R.", "no pickle that a memory snapshot writes"),
    "build": (b"\x80\x04}}\x8c\x01aK\x01sb.", "no pickle that a memory snapshot writes"),
    "inst": (b"(S'true'\nios\nsystem\n.", "import 'os'.'system'"),
    "obj": (b"(\x8c\x02osS'true'\no.", "no pickle that a memory snapshot writes"),
    "newobj": (b"\x80\x04\x8c\x02os)\x81.", "pickle"),
    "ext": (b"\x80\x02\x82\x01.", "pickle"),
    "ext2": (b"\x80\x02\x83\x01\x00.", "pickle"),
    "ext4": (b"\x80\x02\x84\x01\x00\x00\x00.", "pickle"),
    "newobj-ex": (b"\x80\x04\x8c\x02os)}\x92.", "pickle"),
    "next-buffer": (b"\x80\x05\x97.", "pickle"),
    "readonly-buffer": (b"\x80\x05K\x01\x98.", "pickle"),
    "packed-global": (gzip.compress(b"\x80\x02cos\nsystem\n(X\x04\x00\x00\x00truetR."), "import 'os'.'system'"),
    "deep-stack": (deep_stack, "a stack has 40,000 frames"),
    "persid": (b"Pwhere\n.", "outside of itself"),
    "binpersid": (b"\x80\x02K\x01Q.", "outside of itself"),
    "memo": (b"\x80\x04K\x01r\xff\xff\xff\x7f.", "GiB of memory|free here"),
    "bytearray": (b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"abc.", "cut short|GiB of memory|free here"),
    "frame": (b"\x80\x04\x95" + struct.pack("<Q", 1 << 50) + b"N.", "pickle|GiB of memory|free here|cut short"),
    "nested": (b"\x80\x02" + b"]" * 300_000 + b"a" * 299_999 + b".", "no memory snapshot"),
    "deep-hash": (deep_tuple, "ended its reader|no memory snapshot"),
    "bomb": (bomb, "times its length|GiB of memory|free here|cut short"),
    "twice": (b"\x80\x04" + b"]" + b"2" * 4_000_000 + b".", "pickle|no memory snapshot|GiB of memory|free here"),
    "no-size": (without("size"), "'size' is missing"),
    "no-address": (without("addr"), "'addr' is missing"),
    "size-is-text": (wrong(size="large"), "as torch writes them: a value in it has another type"),
    "size-below-zero": (wrong(size=-5), "below zero|no memory snapshot"),
    "size-is-huge": (wrong(size=1 << 80), "no memory snapshot as torch writes"),
    "address-is-list": (wrong(addr=[1]), "as torch writes them: a value in it has another type"),
    "damaged-gzip": (gzip.compress(b"\x80\x02}.")[:10] + b"\xff" * 9, "gzip file: its content is damaged"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_ones_say_why(name, tmp_path):
    data, why = BAD[name]
    (tmp_path / "x.pickle").write_bytes(data() if callable(data) else data)
    with pytest.raises(SnapshotUnreadable, match=why):
        read_snapshot_file(tmp_path / "x.pickle", "x.pickle")


def test_nothing_is_executed(tmp_path):
    made = small()
    made["allocator_settings"] = Calls(tmp_path / "touched")
    (tmp_path / "x.pickle").write_bytes(pickle.dumps(made, 4))
    with pytest.raises(SnapshotUnreadable, match="not executed"):
        read_snapshot_file(tmp_path / "x.pickle", "x")
    assert not (tmp_path / "touched").exists()


@pytest.mark.slow
def test_time_without_end_is_the_kernels_to_end():
    """What no count foresees: the reader has as many seconds of CPU as its file's length explains."""
    code = "from distdbg.collect.files.child_limits import limit_cpu\nlimit_cpu(1)\nwhile True:\n    pass"
    done = subprocess.run([sys.executable, "-c", code], timeout=120)
    assert done.returncode == -signal.SIGXCPU
    assert "s of CPU time" in child_limits.why_it_ended(done.returncode)


def test_a_hard_limit_of_cpu_time_stays_as_it_is():
    """`ulimit -t 3600` on a login node: only root may raise it again."""
    code = """if True:
        import os, resource
        from distdbg.collect.files.child_limits import limit_cpu
        resource.setrlimit(resource.RLIMIT_CPU, (3600, 3600))
        if os.getuid() == 0:
            os.setuid(65534)
        for seconds in (20, 9000):
            limit_cpu(seconds)
            soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
            assert hard == 3600 and 20 <= soft <= min(hard, seconds + 60), (soft, hard)
    """
    done = subprocess.run([sys.executable, "-c", code], timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_is_no_file_and_what_is_missing(tmp_path):
    os.mkfifo(tmp_path / "x.pickle")
    with pytest.raises(SnapshotUnreadable, match="not a regular file"):
        read_snapshot_file(tmp_path / "x.pickle", "x")
    with pytest.raises(SnapshotUnreadable, match="No such file"):
        read_snapshot_file(tmp_path / "y.pickle", "y")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NothingToAnalyse):
        read_snapshots([tmp_path / "empty"])


def test_a_flight_recorder_is_no_snapshot_of_its_folder(tmp_path):
    (tmp_path / "recorder.pickle").write_bytes(pickle.dumps({"entries": []}))
    with pytest.raises(NothingToAnalyse):
        read_snapshots([tmp_path])
    with pytest.raises(EvidenceUnreadable):
        read_snapshots([tmp_path / "recorder.pickle"])


def test_the_next_file_is_read_and_the_bad_one_named(tmp_path):
    (tmp_path / "a_rank0.pickle").write_bytes(GOOD)
    (tmp_path / "b_rank1.pickle.gz").write_bytes(gzip.compress(GOOD))
    (tmp_path / "c_rank2.pickle").write_bytes(GOOD[:100])
    found = read_snapshots([tmp_path])
    assert [a.rank for a in found.answers] == [0, 1]
    assert [(Path(name).name, why) for name, why in found.unread] == [("c_rank2.pickle", "it is cut short")]
    with pytest.raises(EvidenceUnreadable, match="cut short"):
        read_snapshots([tmp_path / "c_rank2.pickle"])


def test_the_newest_attempt_of_a_run(tmp_path):
    for attempt, rank in (("1", "00000"), ("2", "00000"), ("2", "00003")):
        folder = tmp_path / "attempts" / attempt / "ranks" / rank / "memory"
        folder.mkdir(parents=True)
        (folder / "oom.pickle").write_bytes(GOOD)
    found = read_snapshots([tmp_path])
    assert [(a.rank, a.path) for a in found.answers] == [
        (0, "attempts/2/ranks/00000/memory/oom.pickle"),
        (3, "attempts/2/ranks/00003/memory/oom.pickle"),
    ]


def test_the_reader_loads_neither_torch_nor_numpy(tmp_path):
    (tmp_path / "x.pickle").write_bytes(GOOD)
    code = "import sys, runpy; sys.argv = sys.argv[1:]\n" + (
        "import os; os._exit = lambda c: sys.stderr.write(' '.join(sys.modules))\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    script = str(Path(snapshot_child.__file__))
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, script, str(tmp_path / "x.pickle")], capture_output=True, text=True
    )
    loaded = set(done.stderr.split())
    assert "distdbg.evidence.memory.oom" in loaded, done.stderr[-500:]
    assert not loaded & {"torch", "numpy", "click", "jinja2", "pydantic", "subprocess", "socket"}


# -- fuzz ---------------------------------------------------------------------------------------------------------

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
keys = st.sampled_from(["action", "addr", "size", "stream", "time_us", "frames", "device_free", "pool_id", "x"])
actions = st.sampled_from(
    [
        "alloc",
        "free_requested",
        "free_completed",
        "segment_alloc",
        "segment_free",
        "segment_map",
        "segment_unmap",
        "oom",
    ]
)
events = st.fixed_dictionaries(
    {"action": actions, "addr": st.integers(0, 40), "size": st.integers(0, 40), "frames": st.just([])}
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(events, events, events, st.dictionaries(keys, plain)), max_size=30), plain, plain)
def test_any_plain_value_is_analysed_or_refused(trace, segments, other):
    """No shape of containers ends in another exception; the sums hold for what is taken."""
    made = {"segments": segments if isinstance(segments, list) else [], "device_traces": [trace], "more": other}
    try:
        answers = analyse(made)
    except NotASnapshot:
        return
    for answer in answers:
        assert answer.peak.active >= answer.end
        assert sum(h.bytes for h in answer.peak.holders) + answer.peak.rest == answer.peak.active


@settings(max_examples=150, deadline=None)
@given(st.data())
@example(None)
def test_changed_bytes_are_read_or_refused(data):
    """Bytes of a good file changed, doubled, dropped: in this process, as nothing in one can harm it."""
    raw = bytearray(GOOD)
    if data is not None:
        for _ in range(data.draw(st.integers(1, 6))):
            at = data.draw(st.integers(0, len(raw) - 1))
            # A huge memo or string is the bounded process's affair: see BAD.
            raw[at] = data.draw(st.integers(0, 255).filter(lambda b: b not in b"rj\x8d\x8e\x96\x95pTX\x8b\x84B"))
    try:
        import io

        value = plain_pickle.load(io.BufferedReader(io.BytesIO(bytes(raw))), snapshot_child.SnapshotUnpickler)
        analyse(value)
    except (UnreadablePickle, NotASnapshot, MemoryError):
        pass


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*")), ids=lambda p: p.name)
def test_the_corpus(path):
    """What the fuzzers found, and torch's forms that are rare: read, or refused with a sentence."""
    try:
        assert read_snapshot_file(path, path.name)
    except SnapshotUnreadable as error:
        assert len(str(error)) > 10


def test_a_good_one_is_whole(tmp_path):
    (tmp_path / "x.pickle").write_bytes(GOOD)
    (answer,) = read_snapshot_file(tmp_path / "x.pickle", "x")
    assert answer.events == len(small()["device_traces"][0]) and answer.peak.active >= 4 * MIB
    assert forward(31)[0][0].endswith("model.py")


def test_a_pickled_list_of_segments_is_read(tmp_path):
    """`pickle.dump(torch.cuda.memory_snapshot(), file)`."""
    (tmp_path / "x.pickle").write_bytes(pickle.dumps(small()["segments"], 4))
    (answer,) = read_snapshot_file(tmp_path / "x.pickle", "x")
    assert answer.events == 0 and answer.end == answer.peak.active > 0
