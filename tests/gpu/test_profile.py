"""`--profile` of steps on devices: kernels and streams as the profiler has them, and which line waits for what."""

from __future__ import annotations

import gzip
import json

import pytest

from distdbg.rundir import list_runs
from tests.gpu.conftest import BEGIN, END, STEP, line_of

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

#: Both ranks do the same. The reads are first: they wait for the other rank, and then nothing else does. The copy from
#: pinned memory gets no finding.
STEPS = f"""{BEGIN}
host, pinned = torch.randn(1 << 24), torch.randn(1 << 18).pin_memory()
total = torch.zeros((), device="cuda")
for step in range(40):
    for row in range(50):
        total = total + 1
        sum(range(int(total.item()) % 2 + 4000))  # read
    batch = host.to("cuda")  # pageable
    batch = pinned.to("cuda", non_blocking=True){STEP}
{END}"""


def events_of(path):
    with gzip.open(path, "rt") as file:
        return [e for e in json.load(file)["traceEvents"] if isinstance(e, dict)]


def streams(events, part):
    """Of the kernels whose name has `part`."""
    return {e["args"]["stream"] for e in events if e.get("cat") == "kernel" and part in e["name"]}


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.one_gpu), 2])
def test_copies_waits_kernels_and_streams(gpus, tmp_path, figure, ranks):
    """Whether NCCL starts kernels for a rank that is alone is a figure: the box does."""
    box = gpus(devices=ranks)
    done, report = box.launch(STEPS, "--profile", "20:25", ranks=ranks)
    told = {f["id"]: f for f in report["findings"]}
    assert done.code == 0 and sorted(told) == ["sync-in-step", "transfer-in-loop"], report
    copies, reads = told["transfer-in-loop"], told["sync-in-step"]
    assert len(report["findings"]) == 2 and copies["ranks"] == reads["ranks"] == [*range(ranks)], report
    pageable = f"train.py:{line_of(STEPS, '# pageable')} copies from pageable memory to the GPU once a step"
    assert pageable in copies["summary"], copies
    assert f"train.py:{line_of(STEPS, '# read')} makes the host wait" in reads["summary"], reads
    assert "50 times a step, by item()" in reads["summary"], reads

    run = list_runs(tmp_path / "distdbg-runs")[-1]
    for rank in range(ranks):
        events = events_of(run.attempt(1).rank(rank).folder / "profile" / "steps-20-25.json.gz")
        assert {e["args"]["device"] for e in events if e.get("cat") == "kernel"} == {rank}
        assert streams(events, "elementwise") == {7} and not streams(events, "nccl") & {7}
        figure("streams of NCCL", len(streams(events, "nccl")))
        assert streams(events, "nccl") or ranks == 1
    if ranks > 1:
        merged = events_of(next((run.attempt(1).folder / "profile").glob("merged-*.json.gz")))
        assert sum("ncclDevKernel_AllReduce" in str(e.get("name")) for e in merged) >= 2 * 6

    profile = json.loads(box.run("profile", run.path, "--json").out)["profile"]
    for rank, one in enumerate(profile):
        kernels = {row["name"] for row in one["kernels"]}
        assert one["rank"] == rank and one["gpu"]["number"] == rank, one
        assert any("nccl" in name for name in kernels) or ranks == 1, kernels
        assert any("elementwise" in name for name in kernels), kernels
        idle = one["gpu"]["idle"]
        assert one["gpu"]["busy"] + sum(idle.values()) == pytest.approx(1), one
        assert idle["transfers"] > 0.05 and idle["synchronisation"] > 0.05, idle
