"""`memory analyze RUN` and `explain RUN`: the lines, snapshots and failures of a run together."""

import gzip
import json

import pytest

from distdbg.collect.runs import run_evidence
from distdbg.diagnosis.verdict import build_report
from distdbg.evidence.memory.host_snapshot import host_snapshot
from tests.evidence.memory.test_memory_snapshots import fragmented
from tests.made_run import GLOO_LOST, MadeRun
from tests.made_snapshot import Made, forward, train, write

pytestmark = pytest.mark.slow  # a process for each of them

MIB = 1 << 20


def lines(made, rank, slope=0, base=300 * MIB, **columns):
    with made.files(rank).memory_lines.open("w") as file:
        for step in range(0, 400, 5):
            phases = {"optimizer": {"RSS": 2 * base, "ANON": base + slope * step, **columns}}
            file.write(
                json.dumps({"rank": rank, "op": "memory", "step": step, "epochs": step // 100, "phases": phases}) + "\n"
            )
        file.write('{"rank": 0, "cut')


def host_file(made, rank, number, **fields):
    made.files(rank).memory.mkdir(exist_ok=True)
    group = {
        "kind": "tensor",
        "shape": [8, 4],
        "dtype": "torch.float32",
        "device": "cpu",
        "count": 2,
        "bytes": {"cpu": 256},
    }
    raw = {"schema": "distdbg.host-memory/1", "rank": rank, "step": number, "why": "asked", "figures": {"RSS": MIB},
            "groups": [group], "largest": [{**group, "name": "kept", "file": "/home/me/train.py"}],
            "tensors": {"count": 2, "with_graph": 1}, "missing": "no CUDA here", **fields}  # fmt: skip
    path = made.files(rank).memory / f"asked-step{number:06d}-{number:03d}.host.json.gz"
    path.write_bytes(gzip.compress(json.dumps(raw).encode()))


@pytest.fixture
def made(tmp_path):
    made = MadeRun(tmp_path, ranks=4, nodes=1)
    for rank in range(4):
        made.exits(rank, 0)
    return made


def test_a_run_is_shown_rank_by_rank_and_who_grows_is_named(made, distdbg):
    for rank in range(4):
        lines(made, rank, slope=MIB if rank == 2 else 0, MA=100 * MIB, Max_MA=120 * MIB, CA=200 * MIB)
    host_file(made, 1, 7)
    host_file(made, 1, 9)
    done = distdbg("memory", "analyze", made.dir.path)
    assert done.code == 0 and "the memory of rank 2 grows by 1.00 MiB a step" in done.out, done
    assert "own memory 300 MiB -> 695 MiB, at most 695 MiB, 2.3 times the usual" in done.out
    assert "allocated 100 MiB -> 100 MiB, at most 120 MiB, reserved at most 200 MiB" in done.out
    assert "asked-step000009-009" in done.out and "step000007" not in done.out, "of each rank the newest"
    assert "2 x 8x4 float32 cpu, tensor  kept (train.py)" in done.out and "no CUDA here" in done.out
    found = json.loads(distdbg("explain", made.dir.path, "--json").out)["findings"]
    assert [f["id"] for f in found] == ["host-memory-growth"] and found[0]["ranks"] == [2]


def test_a_rank_that_needs_more_of_its_gpu_over_the_whole_run_is_named(made, distdbg):
    for rank in range(4):
        lines(made, rank, MA=300 * MIB, Max_MA=(900 if rank == 2 else 300) * MIB, CA=1000 * MIB)
    done = distdbg("memory", "analyze", made.dir.path)
    said = " ".join(done.out.split())
    assert "rank 2 had up to 900 MiB of its GPU allocated (by step 0), the middle rank up to 300 MiB" in said, done
    assert "at most 900 MiB, 3.0 times the usual, reserved at most 1000 MiB" in said
    (finding,) = json.loads(distdbg("explain", made.dir.path, "--json").out)["findings"]
    assert (finding["id"], finding["severity"], finding["ranks"]) == ("peak-too-high", "info", [2])
    assert "distdbg memory diff RUN --ranks 0,2" in finding["remedy"]


def test_of_a_long_file_that_is_not_read_whole_the_highest_is_known(made, monkeypatch):
    """Of its lines the last and a spread are read: torch's own maximum tells of a backward's peak long before."""
    monkeypatch.setattr(run_evidence, "_MOST_LINES_EACH", 4096)
    for rank in range(4):
        with made.files(rank).memory_lines.open("w") as file:
            for step in range(400):
                highest = (900 if rank == 2 and step >= 100 else 300) * MIB
                phases = {"backward": {"ANON": MIB, "MA": 200 * MIB, "Max_MA": highest, "CA": 1000 * MIB}}
                file.write(json.dumps({"rank": rank, "op": "memory", "step": step, "phases": phases}) + "\n")
    evidence = run_evidence.load_evidence(made.dir)
    assert evidence.ranks[2].memory.points[0].step > 300, "its end alone"
    (finding,) = [f for f in build_report(evidence).findings if f.id == "peak-too-high"]
    assert finding.ranks == (2,) and "up to 900 MiB" in finding.summary and 100 <= finding.step < 110, finding
    assert "were read, 0 to 399" in finding.cause


def snapshots(made, **steps):
    """`r2=(10, 11)`: rank 2 has snapshots of these steps; each holds one leak of 3 MiB for each step, rank 2 more."""
    for name, numbers in steps.items():
        rank = int(name[1:])
        made.files(rank).memory.mkdir(exist_ok=True)
        for number, step in enumerate(numbers, 1):
            device = Made()
            train(device, step, activation=(48 if rank == 2 else 8) * MIB,
                  each=lambda _, device=device: device.alloc(3 * MIB, forward(99, "log")))  # fmt: skip
            write(made.files(rank).memory / f"step-step{step:06d}-{number:03d}.pickle.gz", device, packed=True)


def test_two_ranks_or_two_steps_of_a_run_are_compared(made, distdbg):
    snapshots(made, r0=(4, 6, 8), r2=(4, 6))
    run = made.dir.path
    ranks = json.loads(distdbg("memory", "diff", run, "--ranks", "0,2", "--json").out)["diff"]
    assert (ranks["a"]["rank"], ranks["b"]["rank"]) == (0, 2)
    steps = distdbg("memory", "diff", run, "--steps", "4,8")
    assert steps.code == 0 and "+12.0 MiB  model.py:99 log" in steps.out, steps
    wrong = distdbg("memory", "diff", run, "--ranks", "a,b")
    assert wrong.code == 2 and "is not two numbers" in wrong.err, wrong


def test_a_rank_with_two_snapshots_is_reported_once(made, distdbg):
    snapshots(made, r0=(4, 6), r1=(4, 6), r2=(4, 6), r3=(4, 6))
    report = json.loads(distdbg("memory", "analyze", made.dir.path, "--json").out)
    found = [f for f in report["findings"] if f["id"] == "peak-too-high" and f["severity"] == "warning"]
    assert [(f["ranks"], "step000006" in f["evidence"][0]["path"]) for f in found] == [([2], True)]


def test_a_run_without_anything_of_memory_is_nothing_to_analyse(made, distdbg):
    assert distdbg("memory", "analyze", made.dir.path).code == 3


def test_what_is_broken_is_left_out(made, distdbg):
    folder = made.files(0).memory
    folder.mkdir()
    (folder / "a-001.host.json.gz").write_bytes(b"\x1f\x8b\x08broken")
    (made.files(1).memory).mkdir()
    bomb = gzip.compress(b" " * (64 << 20))
    (made.files(1).memory / "a-001.host.json.gz").write_bytes(bomb)
    host_file(made, 2, 3, schema="another")
    assert distdbg("memory", "analyze", made.dir.path).code == 3
    assert (
        host_snapshot({"schema": "distdbg.host-memory/1", "groups": 5, "tensors": [], "figures": {"x": "y"}}, "p")
        is not None
    )


def test_a_failed_rank_is_reported_with_its_snapshot(tmp_path):
    made = MadeRun(tmp_path, ranks=2, nodes=1)
    made.raises(0, "torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 48.00 MiB.")
    made.exits(1, -15, asked=9.3)
    made.files(0).memory.mkdir()
    write(made.files(0).memory / "oom-step000400-001.pickle.gz", fragmented(), packed=True)
    from distdbg.collect.runs.run_snapshots import with_snapshots

    report = build_report(with_snapshots(run_evidence.load_evidence(made.dir), made.dir))
    root = report.findings[0]
    assert (root.id, root.ranks, root.severity) == ("cuda-oom", (0,), "error")
    assert "asked for 48.0 MiB at model.py:80 attend" in root.summary and "fragmented" in root.summary
    assert "OutOfMemoryError" in root.cause and "oom-step000400-001" in root.evidence[-1].path
    assert [f.id for f in report.findings].count("cuda-oom") == 1


@pytest.mark.parametrize(("name", "size"), [("oom-step000000-003", "48.00 MiB"), ("oom-step000400-001", "1.20 GiB")])
def test_a_caught_requests_snapshot_is_not_taken_for_the_fatal_one(tmp_path, name, size):
    """A search for a batch that fits failed before; the error that ended the rank has no snapshot."""
    made = MadeRun(tmp_path, ranks=1, nodes=1)
    made.raises(0, "torch.OutOfMemoryError", f"CUDA out of memory. Tried to allocate {size}.")
    made.files(0).memory.mkdir()
    write(made.files(0).memory / f"{name}.pickle.gz", fragmented(), packed=True)
    from distdbg.collect.runs.run_snapshots import with_snapshots

    report = build_report(with_snapshots(run_evidence.load_evidence(made.dir), made.dir))
    root, earlier = (f for f in report.findings if f.id == "cuda-oom")
    assert root.severity == "error" and size in root.summary and "attend" not in root.summary + root.remedy
    assert not any("/memory/" in cited.path for cited in root.evidence)
    assert earlier.severity == "info" and earlier.summary.endswith("it went on")


def test_a_request_that_failed_and_was_caught_is_no_error(made):
    made.files(3).memory.mkdir()
    write(made.files(3).memory / "oom-step000002-001.pickle.gz", fragmented(), packed=True)
    for number in (2, 3):
        made.files(2).memory.mkdir(exist_ok=True)
        healthy = Made()
        train(healthy, 12)
        write(made.files(2).memory / f"step-step00000{number}-00{number}.pickle.gz", healthy, packed=True)
    from distdbg.collect.runs.run_snapshots import with_snapshots

    evidence = with_snapshots(run_evidence.load_evidence(made.dir), made.dir)
    assert [a.path.rpartition("/")[2] for a in evidence.snapshots] == [
        "oom-step000002-001.pickle.gz", "step-step000003-003.pickle.gz"]  # fmt: skip
    report = build_report(evidence)
    (found,) = [f for f in report.findings if f.id == "cuda-oom"]
    assert found.severity == "info" and found.summary.endswith("it went on")
    assert report.outcome == "succeeded" and report.exit_code == 0


def ended_by_a_leak(tmp_path):
    """Rank 2 of 4 ran out of memory, and the others lost it."""
    made = MadeRun(tmp_path, ranks=4, nodes=1)
    made.raises(2, "torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 50.00 MiB.", t=9.0)
    for rank in (0, 1, 3):
        made.raises(rank, "RuntimeError", GLOO_LOST, t=9.5)
    return made


def judged(made):
    from distdbg.collect.runs.run_snapshots import with_snapshots

    return build_report(with_snapshots(run_evidence.load_evidence(made.dir), made.dir))


def test_the_leak_is_the_root_cause_of_a_job_that_it_ended(tmp_path):
    made = ended_by_a_leak(tmp_path)
    device = Made(capacity=8 << 30)
    holes = [(device.alloc(14 * MIB, forward(70)), device.alloc(6 * MIB, forward(71))) for _ in range(4)]
    train(device, 30, each=lambda _: device.alloc(50 * MIB, forward(99, "log")))
    device.alloc((8 << 30) - device.reserved - 30 * MIB, forward(60))
    for hole, _ in holes:
        device.free(hole)
    assert device.alloc(50 * MIB, forward(99, "log")) is None
    made.files(2).memory.mkdir()
    write(made.files(2).memory / "oom-step000400-001.pickle.gz", device, packed=True)
    report = judged(made)
    root, error, *others = report.findings
    assert (root.id, root.ranks, root.severity) == ("memory-leak", (2,), "error") and root.explained_by is None
    assert (error.id, error.ranks, error.explained_by) == ("cuda-oom", (2,), "memory-leak")
    assert "short, by 20.0 MiB" in error.summary
    assert {f.explained_by for f in others if f.severity == "error"} == {"memory-leak"}
    assert (report.outcome, report.exit_code, report.exit_code_of) == ("failed", 1, "rank 2")
    assert [f.id for f in report.verdict][:1] == ["memory-leak"]


@pytest.mark.parametrize(("slope", "explained"), [(50 * MIB, "memory-leak"), (0, None)])
def test_without_a_snapshot_the_lines_of_memory_tell_the_leak(tmp_path, slope, explained):
    made = ended_by_a_leak(tmp_path)
    for rank in range(4):
        grows = slope if rank == 2 else 0
        with made.files(rank).memory_lines.open("w") as file:
            for step in range(0, 160, 2):
                allocated = 400 * MIB + grows * step
                phases = {"optimizer": {"ANON": MIB, "MA": allocated, "Max_MA": allocated + MIB, "CA": 8 << 30}}
                line = {"rank": rank, "op": "memory", "step": step, "epochs": step // 40, "phases": phases}
                file.write(json.dumps(line) + "\n")
    report = judged(made)
    (error,) = [f for f in report.findings if f.id == "cuda-oom"]
    assert (error.ranks, error.explained_by) == ((2,), explained)
    assert report.findings[0].id == (explained or "cuda-oom") and report.findings[0].ranks == (2,)
