"""A training script of a common size, with each mistake in another function than the line that shows it: all are found
out at that line, and nothing else; without a mistake nothing is.

Mistakes that do not disturb each other share a run, and all runs share one pair of ranks.
"""

import re
from pathlib import Path

import pytest

from distdbg.launch.replay.guard_trial import run_trials
from distdbg.worker.guards import guard_classes

PROGRAM = Path(__file__).parent / "programs" / "trainer" / "train.py"
#: name of a run -> what is planted in it, further arguments, modes
RUNS = {
    "healthy": ("", "", ""),
    "healthy float16": ("", "--amp float16 --accumulate 1", ""),
    "healthy bfloat16": ("", "--amp bfloat16", ""),
    "healthy fsdp": ("", "--fsdp --width 1024 --epochs 1 --items 6", ""),
    "data": (
        "missing-set-epoch,checkpoint-module-prefix,eval-with-grad,decayed-norms,params-not-optimized,weights-desynced",
        "",
        "",
    ),
    "files": (
        "data-not-sharded,checkpoint-race,checkpoint-not-atomic,scheduler-before-optimizer,layer-rates-mixed,"
        "loss-never-changes",
        "--accumulate 1",
        "",
    ),
    "graphs": (
        "missing-zero-grad,graph-retained,scheduler-cadence,params-without-grad",
        "--accumulate 1 --epochs 9",
        "",
    ),
    "rates": ("learning-rate-zero", "--accumulate 1 --epochs 9", ""),
    "micro-batches": ("redundant-allreduce,loss-not-divided,leftover-steps-dropped", "", ""),
    "precision": (  # a rank with more batches steps on gradients that are not averaged
        "clip-before-unscale,loss-outside-autocast,loader-lengths-differ,weights-desynced",
        "--amp float16",
        "",
    ),
    "scaler": ("scaler-misused,eval-mode-wrong,autocast-dtypes-mixed", "--amp float16", ""),
    "ranks": ("seeds-identical,versions-differ,warmup-too-long,non-finite", "--accumulate 1", "seeds-identical=warn"),
    "devices": ("mixed-devices,ddp-without-device-ids", "", ""),
    "fsdp": ("fsdp-single-unit,full-state-dict-gather", "--fsdp --width 1024 --epochs 1 --items 6", ""),
    "fsdp data": (
        "missing-set-epoch,eval-with-grad,decayed-norms,layer-rates-mixed,scheduler-before-optimizer,checkpoint-not-atomic,"
        "warmup-too-long,params-without-grad,graph-retained,params-not-optimized",
        "--fsdp --accumulate 1 --epochs 9",
        "",
    ),
    "fsdp1 data": (
        "missing-set-epoch,eval-with-grad,scheduler-before-optimizer,checkpoint-race,checkpoint-not-atomic,warmup-too-long,"
        "graph-retained",
        "--fsdp1 --accumulate 1 --epochs 9",
        "",
    ),
    "fsdp micro-batches": ("loss-not-divided,leftover-steps-dropped,eval-mode-wrong", "--fsdp", ""),
    "fsdp1 micro-batches": ("loss-not-divided,leftover-steps-dropped,eval-mode-wrong", "--fsdp1", ""),
    "healthy fsdp1": ("", "--fsdp1", ""),
    "fsdp units": ("fsdp-layer-left-out,fsdp-dtype-mismatch", "--fsdp --width 1024 --epochs 1 --items 6", ""),
}


@pytest.fixture(scope="module")
def trials(request, tmp_path_factory):
    """name of a run -> its trial."""
    wanted = [i.callspec.params["name"] for i in request.session.items if getattr(i, "function", None) is test_run]
    text = PROGRAM.read_text()
    copies = {}
    for name in wanted:
        planted, arguments, modes = RUNS[name]
        head = f"Arguments: --plant {planted or 'none'} {arguments}\n" + (f"Modes: {modes}\n" if modes else "")
        if "mixed-devices" in planted:
            head += "Ends: RuntimeError\n"
        copies[name] = tmp_path_factory.mktemp("run") / "train.py"
        copies[name].write_text(text.replace("Arguments: --plant none\n", head, 1))
    return dict(zip(copies, run_trials(list(copies.values()), timeout=900), strict=True))


@pytest.mark.slow
@pytest.mark.xdist_group("guards-trainer")
@pytest.mark.timeout(1000)  # the first waits for all runs
@pytest.mark.parametrize("name", RUNS)
def test_run(name, trials):
    trial = trials[name]
    assert trial.trouble == ()
    planted = {word for word in RUNS[name][0].split(",") if word}
    assert {f.id for f in trial.findings} == planted, "\n".join(f.summary for f in trial.findings)
    for finding in trial.findings:
        place = re.search(r":(\d+)", finding.evidence[0].where or "")
        if place is not None:  # what is about the whole rank has no line
            assert finding.id in said_at(trial.program, int(place[1])), finding.summary


def said_at(program, line):
    """The comment on this line, and those right above it."""
    lines = program.read_text().splitlines()
    first = line - 1
    while lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return "\n".join(lines[first:line])


def test_each_guard_is_tried_in_the_script():
    planted = {mistake for mistakes, _, _ in RUNS.values() for mistake in mistakes.split(",") if mistake}
    assert planted == {guard.id for guard in guard_classes()}
    assert len(PROGRAM.read_text().splitlines()) > 200
