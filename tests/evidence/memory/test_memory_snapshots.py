"""Planted leaks, fragmentation and errors in files of torch's form: each is found and first, and nothing else is."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from distdbg.evidence.memory import thresholds
from distdbg.evidence.memory.analysis import analyse
from distdbg.evidence.memory.answer import as_plain, from_plain, gib
from distdbg.evidence.memory.diff import difference
from distdbg.evidence.memory.levels import COMPARED_HOLDERS
from distdbg.evidence.memory.oom import rewound
from distdbg.evidence.memory.owners import KEY
from distdbg.evidence.memory.trace import Rare, Segment
from distdbg.report.memory_report import MemoryUse, memory_report
from distdbg.report.page.memory_drawing import HEIGHT, still
from distdbg.report.text.memory_text import diff_lines, memory_lines
from distdbg.report.text.screen import Screen
from tests.made_snapshot import (
    CALL,
    MIB,
    TORCH,
    Made,
    backward,
    forward,
    gradient,
    model_init,
    native,
    optimizer,
    script,
    snapshot,
    train,
)


def memory_text(answers, **how):
    return "\n".join(memory_lines(MemoryUse(answers), Screen.of(**how)))


def diff_text(a, b, found, **how):
    return "\n".join(diff_lines(a, b, found, Screen.of(**how)))


def one(made, **more):
    (answer,) = analyse(snapshot(made, **more))
    return answer


def ids(*answers):
    return [f.id for f in memory_report(answers).verdict]


def label(answer, holder):
    return answer.stacks[holder.stack].label


# -- the peak -----------------------------------------------------------------------------------------------------


def naive_peak(events, start):
    """The highest sum of what stands, counted one by one."""
    standing, total, best = {}, start, start
    for event in events:
        if event["action"] == "alloc":
            standing[event["addr"]] = event["size"]
            total += event["size"]
        elif event["action"] == "free_completed":
            total -= standing.pop(event["addr"], event["size"])
        best = max(best, total)
    return best


@pytest.mark.parametrize("form", ["old", "new"])
@pytest.mark.parametrize("from_event", [0, 137])
def test_the_peak_is_what_a_count_one_by_one_gives(form, from_event):
    made = Made(form=form)
    made.recording = False
    at = made.alloc(32 * MIB, model_init())
    made.recording = True
    train(made, 5)
    made.events = made.events[from_event:]
    made.free(at)
    answer = one(made)
    assert answer.peak.active == naive_peak(made.events, answer.start)
    assert answer.end == sum(b[1] for b in made.blocks.values()) == sum(answer.last.kinds.values())
    assert answer.start >= 32 * MIB
    assert sum(h.bytes for h in answer.peak.holders) + answer.peak.rest == answer.peak.active


def test_what_stood_before_the_first_event_is_the_peak_where_nothing_later_exceeds_it():
    made = Made()
    made.recording = False
    before = [made.alloc(30 * MIB, script(1)) for _ in range(3)]
    made.recording = True
    for at in before[1:]:
        made.free(at)
    made.alloc(5 * MIB, script(2))
    answer = one(made)
    assert (answer.start, answer.peak.active, answer.peak.event) == (90 * MIB, 90 * MIB, -1)
    assert sum(h.bytes for h in answer.peak.holders) == 90 * MIB == max(map(sum, zip(*answer.overview.bytes)))
    assert "peak 90.0 MiB active of 90.0 MiB reserved, before the first event" in memory_text(
        [answer], color=False, width=140
    )


@pytest.mark.parametrize("spike", [0, 3, 1000])
def test_the_peaks_dot_lies_on_a_drawn_area(spike):
    """A peak of one event among thousands, at the beginning, too, is as wide as its column."""
    made = Made()
    train(made, 700, each=lambda step: step != spike or made.free(made.alloc(300 * MIB, forward(77))))
    if spike == 1000:  # before the first event
        made.recording = False
        at = made.alloc(300 * MIB, script(1))
        made.events, made.recording = made.events[-9000:], True
        made.free(at)
        made.events.insert(0, made.events.pop())
    drawn = still(one(made))
    x, y = drawn.peak
    corners = [[float(v) for v in p.split(",")] for a in drawn.areas for p in a.d.strip("MZ").split(" ")]
    flat = [(a, b, top) for (a, top), (b, other) in pairwise(corners) if top == other and a <= x - 1 and x + 1 <= b]
    assert min(top for _, _, top in flat) == pytest.approx(y, abs=0.1) and 0 < y < HEIGHT


def test_users_lines_are_on_top_and_kinds_are_named():
    made = Made()
    made.recording = False
    before = [made.alloc(9 * MIB, model_init())]
    made.recording = True
    train(made, 3)
    answer = one(made)
    labels = [label(answer, h) for h in answer.peak.holders]
    assert labels[0] == "allocated before recording began" and before
    assert "model.py:31 forward" in labels and "model.py:12 __init__" in labels and "train.py:44 step" in labels
    assert not [text for text in labels if "torch::" in text or "unwind" in text or "module.py" in text]
    kinds = answer.peak.kinds
    assert kinds["parameters"] == 8 * MIB and kinds["optimizer state"] == 16 * MIB
    assert kinds["activations"] >= 12 * MIB and kinds["before recording"] == 9 * MIB
    assert {"gradients", "workspace"} & set(kinds)


def test_gathered_parameters_and_ddps_buckets_are_no_activations():
    """Both are made below a forward, and stand to its end and longer."""
    ddp, fsdp = f"{TORCH}/nn/parallel/distributed.py", f"{TORCH}/distributed/fsdp/_fully_shard/_fsdp_param.py"
    made = Made()
    made.alloc(60 * MIB, [(ddp, 1437, "_ddp_init_helper"), (ddp, 880, "__init__"), *script(20)])

    def each(step):
        if step == 1:
            made.alloc(64 * MIB, [(ddp, 1775, "_pre_forward"), (ddp, 1800, "forward"), CALL, *script(40)])
        if step == 2:
            stack = [(fsdp, 1068, "alloc_storage"), (fsdp, 825, "alloc_all_gather_outputs"), CALL, *script(40)]
            made.alloc(30 * MIB, stack)

    train(made, 6, each=each)
    answer = one(made)
    kinds = {holder.bytes // MIB: dict(holder.kinds) for holder in answer.last.holders}
    assert kinds[64] == {"gradients": 64 * MIB} and kinds[60] == {"gradients": 60 * MIB}
    assert kinds[30] == {"parameters": 30 * MIB}


DDP = f"{TORCH}/nn/parallel/distributed.py"
SITE = TORCH.removesuffix("/torch")
TO_DEVICE = "torch::autograd::dispatch_to(at::Tensor const&, c10::Device, bool, bool, std::optional<c10::MemoryFormat>)"
TO_DTYPE = (
    "torch::autograd::dispatch_to(at::Tensor const&, c10::ScalarType, bool, bool, std::optional<c10::MemoryFormat>)"
)
STEP = script(40)
PARALLEL = [(f"{TORCH}/nn/parallel/data_parallel.py", 190, "forward"), CALL, *STEP]
COPIES = {
    "DataParallel's copies": ("replicas", [
        (f"{TORCH}/nn/parallel/comm.py", 67, "broadcast_coalesced"),
        (f"{TORCH}/nn/parallel/_functions.py", 24, "forward"),
        (f"{TORCH}/nn/parallel/replicate.py", 108, "_broadcast_coalesced_reshape"), *PARALLEL]),
    "DataParallel's parts of a batch": ("inputs", [
        (f"{TORCH}/nn/parallel/comm.py", 205, "scatter"), (f"{TORCH}/nn/parallel/_functions.py", 140, "forward"),
        *PARALLEL]),
    "DDP and FSDP move a batch": ("inputs", [
        (f"{TORCH}/distributed/utils.py", 105, "to_map"), (f"{TORCH}/distributed/utils.py", 152, "_recursive_to"),
        (DDP, 1789, "_pre_forward"), (DDP, 1800, "forward"), CALL, *STEP]),
    "made below the loader": ("inputs", [
        (f"{TORCH}/utils/data/_utils/pin_memory.py", 60, "pin_memory"),
        (f"{TORCH}/utils/data/dataloader.py", 800, "__next__"), *STEP]),
    "a transform below the loader": ("inputs", [
        (f"{SITE}/torchvision/transforms/v2/_transform.py", 50, "forward"), CALL,
        (f"{TORCH}/utils/data/_utils/fetch.py", 52, "fetch"), *STEP]),
    "Accelerate": ("inputs", [
        (f"{SITE}/accelerate/utils/operations.py", 160, "send_to_device"),
        (f"{SITE}/accelerate/data_loader.py", 580, "__iter__"), *STEP]),
    "Accelerate below a forward": ("activations", [
        (f"{SITE}/accelerate/utils/operations.py", 160, "send_to_device"),
        (f"{SITE}/accelerate/hooks.py", 370, "pre_forward"), (f"{SITE}/accelerate/hooks.py", 170, "new_forward"), CALL,
        *STEP]),
    "Trainer": ("inputs", [(f"{SITE}/transformers/trainer.py", 2370, "_prepare_input"), *STEP]),
    "Lightning": ("inputs", [(f"{SITE}/lightning/fabric/utilities/apply_func.py", 104, "batch_to"), *STEP]),
    ".to(device) in the loop": ("inputs", native(TO_DEVICE) + STEP),
    ".to(device) between a model's devices": ("activations", native(TO_DEVICE) + forward(31)),
    ".to(dtype) in the loop": ("unattributed", native(TO_DTYPE) + STEP),
    "the loop, and no call is known": ("unattributed", STEP),
}  # fmt: skip


@pytest.mark.parametrize("name", COPIES)
def test_copies_of_the_model_and_of_batches_are_no_activations(name):
    kind, stack = COPIES[name]
    made = Made()
    train(made, 3)
    made.alloc(50 * MIB, stack)
    assert [dict(h.kinds) for h in one(made).last.holders if h.bytes == 50 * MIB] == [{kind: 50 * MIB}]


def test_a_list_of_segments_is_a_snapshot_without_events():
    """What torch.cuda.memory_snapshot() gives."""
    made = Made()
    made.alloc(5 * MIB, model_init())
    made.alloc(6 * MIB, optimizer())
    made.recording = False
    made.alloc(7 * MIB)
    (answer,) = analyse(made.plain_segments())
    assert (answer.events, answer.end, answer.peak.active) == (0, 18 * MIB, 18 * MIB)
    assert answer.last.kinds == {"before recording": 7 * MIB, "optimizer state": 6 * MIB, "parameters": 5 * MIB}
    assert any("no trace" in u.because for u in memory_report([answer]).unknown)


def test_what_was_allocated_before_recording_has_a_kind_of_its_own():
    made = Made()
    made.recording = False
    weight, other = made.alloc(40 * MIB), made.alloc(9 * MIB)
    made.recording = True
    train(made, 4)
    raw = snapshot(made)
    (answer,) = analyse(raw)
    assert answer.peak.kinds["before recording"] == 49 * MIB and "unattributed" not in answer.peak.kinds
    assert answer.peak.phases["before recording"] == 49 * MIB
    (unknown,) = [u for u in memory_report([answer]).unknown if "before recording" in u.because]
    assert "49.0 MiB" in unknown.what
    raw = snapshot(made)
    raw[KEY] = {"schema": "distdbg.owners/1", "left_out": 4, "blocks": [[0, weight, 40 * MIB, "parameters", "w"]]}
    (named,) = analyse(raw)
    assert named.peak.kinds["before recording"] == 9 * MIB and named.peak.kinds["parameters"] == 48 * MIB and other


def test_names_of_functions_do_nothing_to_a_terminal():
    """A file may come from anybody, and a name may be any text."""
    made, title = Made(), "\x1b]0;mine\x07"
    stack = [(f"{TORCH}/functional.py", 3, title), *script(3), *script(9, f"caller{title}")]
    made.alloc(20 * MIB, stack)
    before = one(made)
    made.alloc(20 * MIB, stack)
    after = one(made)
    shown = memory_text([after], color=True, width=200)
    beside = diff_text(before, after, difference(before, after), color=True, width=200)
    for text in (shown, beside):
        assert "in functional.py:3" in text and "train.py:9 caller" in text
        assert "\x07" not in text and "\x1b]" not in text


def test_python_frames_among_native_ones():
    made = Made()
    mixed = native("at::native::empty_cuda(long)", "at::_ops::mm::call(at::Tensor const&)") + forward(54, "attend")
    made.alloc(4 * MIB, mixed)
    made.alloc(2 * MIB, native("at::cuda::getNewWorkspace()", "at::_ops::mm::call(x)"))
    made.alloc(1 * MIB, native("at::_ops::mul_Tensor::call(x)"))
    answer = one(made)
    assert [label(answer, h) for h in answer.peak.holders] == ["model.py:54 attend", "torch's mm", "torch's mul_Tensor"]
    assert answer.peak.holders[1].kinds == {"workspace": 2 * MIB}


def test_stacks_of_python_only_leave_autograds_thread_without_frames():
    made = Made()
    for _ in range(6):
        saved = made.alloc(4 * MIB, forward(31))
        through = made.alloc(8 * MIB)
        made.free(saved)
        made.free(through)
    answer = one(made)
    assert label(answer, answer.peak.holders[0]) == "no Python frame (autograd's thread, mostly)"
    assert answer.stacks[answer.peak.holders[0].stack].phase == "backward"
    assert answer.steps_from == "the turns from backward to forward"


def test_several_devices_and_unknown_keys():
    first, third = Made(0), Made(2)
    train(first, 4)
    third.alloc(5 * MIB, script(7))
    made = snapshot(first, third)
    made["new_in_2_99"] = [1]
    for event in made["device_traces"][0]:
        event["whatever"] = 1
    answers = analyse(made)
    assert [(a.device, a.end) for a in answers] == [(0, 24 * MIB), (2, 5 * MIB)]


def test_without_a_trace_it_says_what_stands():
    made = Made()
    made.alloc(5 * MIB, script(7))
    made.events = []
    answer = one(made)
    assert answer.events == 0 and label(answer, answer.peak.holders[0]) == "train.py:7 step"
    assert any("no trace" in u.because for u in memory_report([answer]).unknown)


def test_blocks_that_another_stream_still_uses_stand_until_they_are_complete():
    made = Made()
    at = made.alloc(4 * MIB, script(7))
    made.free(at, wait=1)
    made.alloc(2 * MIB, script(8))
    made.complete(at)
    assert one(made).peak.active == 6 * MIB


def test_the_ring_that_dropped_its_oldest_events_differs_from_a_late_start():
    ring, late = Made(most_events=300), Made()
    train(ring, 10)
    late.recording = False
    weights, _ = train(late, 3)
    late.recording = True
    train(late, 6)
    for at in weights:
        late.free(at)
    dropped, began = one(ring), one(late)
    assert dropped.dropped_blocks >= 3 and any("A ring" in u.because for u in memory_report([dropped]).unknown)
    beside = diff_text(dropped, began, difference(dropped, began), color=False, width=90)
    assert "the oldest events of A were dropped" in beside
    assert began.dropped_blocks == 0 and any("before recording" in u.because for u in memory_report([began]).unknown)


# -- leaks --------------------------------------------------------------------------------------------------------

LEAKS = {
    "list of losses": lambda m, kept: lambda s: kept.append(m.alloc(2 * MIB, forward(99, "log"))),
    "every third step": lambda m, kept: lambda s: s % 3 or kept.append(m.alloc(3 * MIB, forward(99, "log"))),
    "buffer that grows": lambda m, kept: lambda s: (
        kept.append(m.alloc((s + 1) * MIB, forward(99, "log"))), m.free(kept.pop(0)) if len(kept) > 1 else None),
    "in the backward": lambda m, kept: lambda s: kept.append(m.alloc(2 * MIB, backward("LogBackward0"))),
}  # fmt: skip


@pytest.mark.parametrize("name", LEAKS)
@pytest.mark.parametrize("steps", [12, 60])
def test_a_planted_leak_is_first_and_alone(name, steps):
    made, kept = Made(), []
    train(made, steps, each=LEAKS[name](made, kept))
    answer = one(made)
    wanted = "LogBackward0 (backward)" if name == "in the backward" else "model.py:99 log"
    assert [label(answer, leak) for leak in answer.leaks] == [wanted]
    per_step = {"every third step": 1, "buffer that grows": 1}.get(name, 2) * MIB
    assert answer.leaks[0].slope == pytest.approx(per_step, rel=0.35)
    assert ids(answer)[0] == "memory-leak"


def test_three_leaks_are_ranked_by_their_speed():
    made = Made()
    train(made, 30, each=lambda s: [made.alloc(n * MIB, forward(90 + n)) for n in (1, 4, 2)])
    answer = one(made)
    assert [label(answer, leak)[:11] for leak in answer.leaks] == ["model.py:94", "model.py:92", "model.py:91"]


def innocent(name):
    made, rng, kept = Made(), random.Random(7), []
    each = {
        "plain": None,
        "a cache that is filled once": lambda s: s < 8 and kept.append(made.alloc(2 * MIB, forward(80, "cache"))),
        "a bounded queue": lambda s: (
            kept.append(made.alloc(2 * MIB, forward(80))), made.free(kept.pop(0)) if len(kept) > 6 else None),
        "changing shapes": lambda s: (
            kept.append(made.alloc(rng.randrange(1, 12) * MIB, forward(80))),
            made.free(kept.pop(0)) if len(kept) > 1 else None),
        "an epoch's list": lambda s: (
            kept.append(made.alloc(2 * MIB, forward(80))), [made.free(kept.pop()) for _ in range(len(kept))]
            if s % 10 == 9 else None),
    }[name]  # fmt: skip
    train(made, 60, each=each)
    return made


@pytest.mark.parametrize(
    "name", ["plain", "a cache that is filled once", "a bounded queue", "changing shapes", "an epoch's list"]
)
def test_what_looks_like_a_leak_and_is_none(name):
    answer = one(innocent(name))
    assert answer.steps >= 50 and not answer.leaks_unknown
    assert answer.leaks == () and "memory-leak" not in ids(answer)


def longer(steps, logits):
    """Inputs that grow: what stands at a step's end is the last batch and its logits, made anew in each."""
    made, stands = Made(), []
    weights = [made.alloc(2 * MIB, model_init(12 + n)) for n in range(4)]
    for step in range(4, 4 + steps):
        batch = made.alloc(step << 16, script(70))
        saved = [made.alloc(step << 18, forward(30 + n)) for n in range(4)]
        now = [batch, made.alloc(step * logits, forward(50))]
        while stands:
            made.free(stands.pop())
        stands += now
        gradients = []
        for at in reversed(saved):
            gradients.append(made.alloc(2 * MIB, gradient()))
            made.free(at)
        for _ in weights:
            made.free(made.alloc(2 * MIB, optimizer(300)))
        for at in gradients:
            made.free(at)
    return made


def test_sequences_sorted_by_length_are_no_leak():
    answer = one(longer(40, 1 << 19))
    assert answer.steps >= 38 and answer.leaks == () and "memory-leak" not in ids(answer)
    assert "model.py:50 forward (and 1 more)" in answer.leaks_unknown


def test_what_is_made_longer_with_each_step_is_a_leak_however_much_its_copying_takes():
    made, kept = Made(), []

    def appended(step):
        kept.append(made.alloc((step + 1) * 30 * MIB, script(55)))
        if len(kept) > 1:
            made.free(kept.pop(0))

    train(made, 40, each=appended)
    answer = one(made)
    assert [label(answer, leak) for leak in answer.leaks] == ["train.py:55 step"]


def test_one_forward_pass_is_no_leak():
    """Its layers fill memory as a leak does: nothing is said, and that is said."""
    made = Made()
    for layer in range(64):
        for _ in range(4):
            made.alloc(4 * MIB, forward(31))
        made.free(made.alloc(2 * MIB, forward(30 + layer % 3)))
    answer = one(made)
    assert answer.leaks == () and "ends of steps" in answer.leaks_unknown
    assert ids(answer) in ([], ["peak-too-high"])


def test_annotations_of_the_optimizer_mark_steps():
    made, notes = Made(), []

    def each(step):
        notes.append({"name": "Optimizer.step#SGD.step", "stage": "START", "device": 0, "time_us": made.now})
        notes.append({"name": "Optimizer.step#SGD.step", "stage": "END", "device": 0, "time_us": made.now + 1})

    train(made, 8, each=each)
    answer = one(made, annotations=notes)
    assert (answer.steps, answer.steps_from) == (8, "the optimizer's annotations")


def test_our_own_marks_number_the_steps_and_are_no_modules_names():
    made = Made()
    train(made, 3)
    for step in range(40, 50):
        for letter, line in (("f", 31), ("b", 33), ("o", 35)):
            made.free(made.alloc(2 * MIB, forward(line), metadata=f"ddbg {step} {letter}"))
    answer = one(made)
    assert (answer.steps, answer.steps_from) == (9, "distdbg's marks, from step 40 on")
    assert not any("ddbg" in stack.label for stack in answer.stacks)


def test_what_the_script_has_named_itself_stays_a_name():
    made = Made()
    made.alloc(200 * MIB, forward(31), metadata="ddbg's tower")
    train(made, 6)
    answer = one(made)
    assert "[ddbg's tower]" in answer.stacks[answer.peak.holders[0].stack].label


def test_a_mark_tells_the_phase_where_no_stack_does():
    """A loss in the script's own lines, a hook that the backward calls. What it is stays open."""
    made = Made()
    made.alloc(4 * MIB, script(7, "loss"), metadata="ddbg 3 f")
    made.alloc(3 * MIB, script(8, "hook"), metadata="ddbg 3 b")
    made.alloc(2 * MIB, script(9, "clip"), metadata="the script's own")
    peak = one(made).peak
    assert peak.phases == {"forward": 4 * MIB, "backward": 3 * MIB, "elsewhere": 2 * MIB}
    assert peak.kinds == {"unattributed": 9 * MIB}


# -- out of memory ------------------------------------------------------------------------------------------------


def fragmented(**more):
    """Holes of 8 MiB between blocks that stay; after the error everything is given back."""
    made = Made(capacity=1024 * MIB, **more)
    train(made, 3)
    pairs = []
    while (large := made.alloc(6 * MIB, forward(70, "pad"))) is not None:
        if (small := made.alloc(3 * MIB, forward(71, "cache"))) is None:
            break
        pairs.append((large, small))
    for large, _ in pairs:
        made.free(large)
    made.release()
    assert made.alloc(48 * MIB, forward(80, "attend")) is None
    for _, small in pairs:
        made.free(small)
    made.release()
    return made


@pytest.mark.parametrize("form", ["old", "new"])
def test_a_fragmented_error_is_judged_by_the_segments_of_its_moment(form):
    made = fragmented(form=form)
    answer = one(made)
    oom = answer.oom
    assert oom.verdict == "fragmented" and oom.request == 48 * MIB
    # all that was mapped then, although hardly anything is at the end
    assert oom.reserved + oom.device_free == 1024 * MIB > 10 * answer.reserved_end
    assert 3 * MIB <= oom.largest_hole < oom.request <= oom.free_usable
    assert oom.by == oom.free_usable + oom.device_free - oom.request
    assert oom.free_inside == oom.reserved - oom.active
    assert next(iter(answer.at_oom.kinds)) == "activations"  # although the exception freed them, and no backward came
    first = memory_report([answer]).findings[0]
    assert first.id == "cuda-oom" and "fragmented" in first.summary and "expandable_segments" in first.remedy
    assert "model.py:80 attend" in first.summary


def test_a_real_shortage_says_by_how_much_and_what_helps():
    made = Made(capacity=1000 * MIB)
    train(made, 3)
    while made.alloc(40 * MIB, forward(60, "attend")) is not None:
        pass
    assert made.alloc(400 * MIB, forward(61, "project")) is None
    answer = one(made)
    assert answer.oom.verdict == "short" and answer.oom.how_many == 2
    assert answer.oom.by == 400 * MIB - answer.oom.device_free - answer.oom.free_usable
    first = memory_report([answer]).findings[0]
    assert first.severity == "error" and gib(answer.oom.by) in first.summary
    assert "activations" in first.remedy and "batch" in first.remedy


def test_a_batch_that_did_not_fit_and_a_training_after_it_are_no_failure():
    made = Made(capacity=400 * MIB)
    first = made.alloc(300 * MIB, forward(20))
    assert made.alloc(200 * MIB, forward(21)) is None
    alone = one(made)
    assert [f.severity for f in memory_report([alone]).findings if f.id == "cuda-oom"] == ["error"]
    made.free(first)
    train(made, 8)
    (found,) = [f for f in memory_report([one(made)]).findings if f.id == "cuda-oom"]
    assert found.severity == "info" and "100 MiB" in found.summary and "7 steps" in found.summary


def test_a_leak_that_fills_the_device_is_named_in_the_error():
    made = Made(capacity=1500 * MIB)
    train(made, 30, each=lambda s: made.alloc(40 * MIB, forward(99, "log")))
    while made.alloc(40 * MIB, forward(31)) is not None:
        pass
    answer = one(made)
    report = memory_report([answer])
    assert [(f.id, f.explained_by) for f in report.findings] == [("memory-leak", None), ("cuda-oom", "memory-leak")]
    assert "model.py:99 log" in report.findings[1].remedy and report.findings[0].severity == "error"


def with_holes(device, holes, each):
    """A device of so many GiB with that many holes of 14 MiB, full but for 30 MiB; then 50 MiB are asked for."""
    made = Made(capacity=device << 30)
    pairs = [(made.alloc(14 * MIB, forward(70)), made.alloc(6 * MIB, forward(71))) for _ in range(holes)]
    train(made, 30, each=each(made))
    made.alloc((device << 30) - made.reserved - 30 * MIB, model_init())
    for hole, _ in pairs:
        made.free(hole)
    assert made.alloc(50 * MIB, forward(80, "attend")) is None
    return one(made)


NO_LEAK = lambda made: None  # noqa: E731
LEAK = lambda made: lambda step: made.alloc(50 * MIB, forward(99, "log"))  # noqa: E731
SMALL_LEAK = lambda made: lambda step: made.alloc(1 * MIB, forward(99, "log"))  # noqa: E731


def test_a_leak_is_the_root_cause_of_the_error_and_few_holes_are_no_fragmentation():
    """Of a real case: 56 MiB in holes of a device of 8 GiB, which a leak of 50 MiB a step had filled."""
    answer = with_holes(8, 4, LEAK)
    assert (answer.oom.verdict, answer.oom.by, answer.oom.largest_hole) == ("short", 20 * MIB, 20 * MIB)
    assert answer.oom.free_usable >= answer.oom.request
    report = memory_report([answer])
    leak, error = report.findings
    assert (leak.id, leak.severity, leak.explained_by) == ("memory-leak", "error", None)
    assert (error.id, error.severity, error.explained_by) == ("cuda-oom", "error", "memory-leak")
    assert "model.py:99 log" in leak.summary and "fragmented" not in error.summary + error.cause
    assert "without that it would have been served" in error.cause


@pytest.mark.parametrize(
    ("device", "holes", "verdict"), [(8, 4, "short"), (8, 25, "short"), (8, 32, "fragmented"), (1, 4, "fragmented")]
)
def test_fragmented_is_said_where_holes_are_a_substantial_part_of_the_device(device, holes, verdict):
    answer = with_holes(device, holes, NO_LEAK)
    assert answer.oom.verdict == verdict
    share = answer.oom.free_usable / (answer.oom.reserved + answer.oom.device_free)
    assert (share >= thresholds.FRAGMENTED) == (verdict == "fragmented")
    assert [(f.id, f.explained_by) for f in memory_report([answer]).findings] == [("cuda-oom", None)]


@pytest.mark.parametrize(("holes", "verdict"), [(1, "short"), (2, "fragmented")])
def test_what_is_left_of_one_segment_is_no_fragmentation_of_a_small_device(holes, verdict):
    """Of a real case: 13 MiB were a twentieth of what a device of 1 GiB had left beside its context."""
    made = Made(capacity=250 * MIB)
    pairs = [(made.alloc(14 * MIB, forward(70)), made.alloc(6 * MIB, forward(71))) for _ in range(holes)]
    made.alloc(250 * MIB - made.reserved - 12 * MIB, model_init())
    for hole, _ in pairs:
        made.free(hole)
    assert made.alloc(24 * MIB, forward(80, "attend")) is None
    oom = one(made).oom
    assert (oom.verdict, oom.by) == (verdict, 12 * MIB if verdict == "short" else oom.free_usable - 12 * MIB)


def test_holes_that_do_not_add_up_make_the_shortage_a_range_in_whole_segments():
    """24 MiB asked for, 8 free on the device, 4.9 in a hole: not 11.1 are short, but 12 to 16."""
    made = Made(capacity=200 * MIB)
    made.alloc(9 * MIB, forward(70)), made.alloc(6 * MIB + 64 * 1024, forward(71))  # of a segment of 20
    made.alloc(200 * MIB - made.reserved - 8 * MIB, forward(72))
    assert made.alloc(24 * MIB, forward(80, "attend")) is None
    oom = one(made).oom
    assert 4 * MIB < oom.largest_hole < 5 * MIB and oom.device_free == 8 * MIB
    assert (oom.verdict, oom.by, oom.enough, oom.missing) == ("short", 12 * MIB, 16 * MIB, 12 * MIB)
    first = memory_report([one(made)]).findings[0]
    assert "at least 12.0 MiB" in first.summary and "12.0 MiB to 16.0 MiB" in first.remedy


def test_in_a_fragmented_device_a_leak_that_held_what_was_missing_is_the_root_cause():
    answer = with_holes(8, 40, LEAK)
    assert answer.oom.verdict == "fragmented"
    assert [f.id for f in memory_report([answer]).verdict] == ["memory-leak"]


def test_a_leak_that_is_smaller_than_what_was_missing_explains_nothing():
    answer = with_holes(1, 4, SMALL_LEAK)
    assert sum(leak.grown for leak in answer.leaks) < answer.oom.missing == 30 * MIB
    first, second = memory_report([answer]).findings
    assert (first.id, first.explained_by) == ("cuda-oom", None) and "less than was missing" in first.cause
    assert (second.id, second.severity) == ("memory-leak", "warning")


def test_memory_of_other_streams_and_pools_is_not_for_this_request():
    made = Made(capacity=400 * MIB)
    private = [made.alloc(18 * MIB, script(1), pool=(0, 1)) for _ in range(8)]
    other = [made.alloc(18 * MIB, script(2), stream=7) for _ in range(8)]
    keep = [made.alloc(1 * MIB + 1, script(3), pool=(0, 1))], [made.alloc(1 * MIB + 1, script(3), stream=7)]
    for at in private + other:
        made.free(at)
    assert made.alloc(90 * MIB, script(4)) is None and keep
    oom = one(made).oom
    assert oom.free_inside > 250 * MIB and oom.free_usable == 0 and oom.verdict == "short"


def test_expandable_segments_are_rewound_page_by_page():
    made = Made(capacity=256 * MIB, expandable=True)
    held = [made.alloc(20 * MIB, script(1)) for _ in range(12)]
    assert made.alloc(40 * MIB, script(2)) is None
    for at in held:
        made.free(at)
    made.release()
    answer = one(made)
    assert answer.reserved_end == 0 and answer.oom.reserved == answer.oom.active == 240 * MIB
    assert answer.oom.expandable and answer.oom.verdict == "short" and answer.oom.by == 24 * MIB


def test_a_request_of_a_private_pool_has_that_pools_holes():
    made = Made(capacity=200 * MIB)
    graph = [made.alloc(18 * MIB, script(1), pool=(0, 1)) for _ in range(5)]
    others = [made.alloc(18 * MIB, script(2)) for _ in range(5)]
    for at in graph[:3] + others:
        made.free(at)
    assert made.alloc(30 * MIB, script(3), pool=(0, 1)) is None
    for at in graph[3:]:
        made.free(at)
    made.release()  # all of it: the pools of what was there then are known by the events alone
    oom = one(made).oom
    assert (oom.verdict, oom.free_usable, oom.largest_hole) == ("fragmented", 54 * MIB, 18 * MIB)
    assert oom.reserved == 180 * MIB and oom.free_inside == 144 * MIB


def test_holes_within_expandable_segments_have_another_remedy():
    made = Made(capacity=240 * MIB, expandable=True)
    pages = [[made.alloc(size * MIB, script(size)) for size in (9, 6, 5)] for _ in range(12)]
    for first, *_ in pages:
        made.free(first)
    assert made.alloc(30 * MIB, script(2)) is None
    answer = one(made)
    assert (answer.oom.verdict, answer.oom.largest_hole, answer.oom.by) == ("fragmented", 9 * MIB, 78 * MIB)
    assert "Segments are expandable already" in memory_report([answer]).findings[0].remedy


def test_more_than_any_kind_of_memory_holds_is_said():
    made = Made(capacity=200 * MIB)
    train(made, 3)
    assert made.alloc(900 * MIB, forward(61)) is None
    assert memory_report([one(made)]).findings[0].remedy.startswith("No one kind of memory is large enough")


@pytest.mark.parametrize(("expandable", "capacity", "request_", "by"), [(False, 112, 5, 8), (True, 130, 22, 10)])
def test_what_the_device_is_asked_for_is_rounded_up(expandable, capacity, request_, by):
    """20 MiB for 5, two pages of 20 for 22: what was free on the device is more than the request, and too little."""
    made = Made(capacity=capacity * MIB, expandable=expandable)
    for _ in range(5):
        made.alloc(20 * MIB, script(1))
    made.record("oom", request_ * MIB, [], device_free=(capacity - 100) * MIB)
    oom = one(made).oom
    assert (oom.verdict, oom.by, oom.free_usable) == ("short", by * MIB, 0)


def test_expandable_segments_are_rewound_in_parts():
    begin = 0x7F0000000000

    def segment(at, size):
        return Segment(begin + at * MIB, size * MIB, 0, False, True, "(0, 0)")

    def then(segments, *events):
        later = [Rare(n, f"segment_{action}", begin + at * MIB, size * MIB, 0, 0, "(0, 0)", 0)
                 for n, (action, at, size) in enumerate(events)]  # fmt: skip
        return [((r.start - begin) // MIB, (r.end - begin) // MIB, r.of.small) for r in rewound(segments, later)]

    assert then([segment(0, 100)], ("map", 40, 20)) == [(0, 40, False), (60, 100, False)]
    assert then([segment(0, 40), segment(60, 40)], ("unmap", 40, 20)) == [(0, 100, False)]
    assert then([segment(0, 40)], ("map", 40, 40), ("unmap", 60, 20), ("unmap", 40, 20)) == [(0, 40, False)]
    assert then([segment(0, 100)], ("unmap", 40, 20), ("map", 40, 20)) == [(0, 100, False)]
    assert then([], ("unmap", 0, 6), ("unmap", 40, 40)) == [(0, 6, True), (40, 80, False)], "pages of 2 and of 20 MiB"


def test_a_hole_that_was_large_enough_is_what_is_cited():
    made = Made()
    made.free(made.alloc(300 * MIB, script(1)))
    made.record("oom", 200 * MIB, made.frames(script(2)), device_free=0)
    first = memory_report([one(made)]).findings[0]
    assert "300 MiB" in first.summary
    assert "max_split_size_mb" in first.remedy and "per_process" not in first.remedy and first.confidence == "likely"


def test_a_limit_of_the_process_is_neither():
    made = Made(capacity=100 * MIB)
    made.alloc(60 * MIB, script(1))
    made.alloc(60 * MIB, script(2))
    made.events[-1]["device_free"] = 900 * MIB
    first = memory_report([one(made)]).findings[0]
    assert "900 MiB free" in first.summary
    assert "set_per_process_memory_fraction" in first.remedy and "max_split" not in first.remedy


# -- fragmentation without an error ---------------------------------------------------------------------------------


def test_reserved_that_grows_at_flat_use_is_fragmentation():
    made, rng, kept = Made(), random.Random(3), []

    def each(step):
        # a block that stays a while lies in the middle of each new segment
        shape = (10 + 2 * step) * MIB
        kept.append(made.alloc(shape, forward(70, "pad")))
        made.free(kept.pop())
        rng.random()

    train(made, 30, each=each)
    answer = one(made)
    assert ids(answer)[0] == "fragmentation"


def varying(sizes, **more):
    """A batch of another length each step: its tensors are let go, and a little of it stays for a few steps."""
    made, kept = Made(**more), []

    def each(step):
        batch = [made.alloc(next(sizes) * MIB, forward(70 + n, "attend")) for n in range(3)]
        kept.append(made.alloc(MIB + MIB // 2, forward(80, "metrics")))
        for at in batch:
            made.free(at)
        if len(kept) > 8:
            made.free(kept.pop(0))

    train(made, 60, each=each)
    return made


def test_shapes_that_vary_leave_holes_and_a_few_sizes_do_not():
    """Lengths that grow through an epoch (a curriculum, sorted batches): no hole is large enough for the next one."""
    longer = varying(iter(range(20, 220)))
    answer = one(longer)
    found = memory_report([answer]).verdict
    assert answer.peak.reserved > 3 * answer.peak.active
    assert found[0].id == "fragmentation" and "pad inputs to a few sizes" in found[0].remedy
    assert "with every step, " in found[0].summary
    assert "model.py:72 attend" in found[0].cause
    assert "empty at the end" in found[0].cause, "the last batch was let go"
    assert "expandable_segments" in found[0].remedy and "memory-leak" not in [f.id for f in found]
    few = varying(20 + 40 * (n % 4) for n in range(200))
    assert "fragmentation" not in ids(one(few)), "padded to four sizes: what was reserved once is used again"


def test_the_pages_of_an_expandable_segment_are_kept_by_nobody():
    made = Made(expandable=True)
    train(made, 3)
    answer = one(made)
    assert answer.kept_open == () and answer.standing_empty == answer.reserved_end - answer.end


def test_who_keeps_holes_open():
    made = Made()
    train(made, 3)
    pairs = [(made.alloc(6 * MIB, forward(70, "pad")), made.alloc(3 * MIB, forward(71, "cache"))) for _ in range(20)]
    for large, _ in pairs:
        made.free(large)
    answer = one(made)
    kept = [(answer.stacks[s.stack].label, s.bytes, s.count) for s in answer.kept_open]
    assert ("model.py:71 cache", 10 * 14 * MIB, 10) in kept and "pad" not in str(kept), kept
    before = answer.standing_empty
    for _, small in pairs:
        made.free(small)
    assert one(made).standing_empty - before == 200 * MIB, "nothing is in them now"


def test_a_healthy_step_end_is_none():
    """Activations were just freed: reserved is far above allocated, and that means nothing."""
    made = Made()
    train(made, 20, activation=64 * MIB)
    answer = one(made)
    assert answer.reserved_end > 3 * answer.end
    assert "fragmentation" not in ids(answer)


# -- several ------------------------------------------------------------------------------------------------------


def ranks(*sizes):
    answers = []
    for rank, size in enumerate(sizes):
        made = Made()
        train(made, 6, activation=size * MIB)
        (answer,) = analyse(snapshot(made))
        answers.append(from_plain({**as_plain(answer), "rank": rank, "path": f"rank{rank}.pickle"}))
    return answers


def test_a_rank_that_needs_more_than_the_others():
    found = [f for f in memory_report(ranks(16, 16, 64, 16)).findings if f.severity == "warning"]
    assert [(f.id, f.ranks) for f in found] == [("peak-too-high", (2,))]
    assert not [f for f in memory_report(ranks(16, 16, 16)).findings if f.severity == "warning"]


def test_ranks_are_compared_by_snapshots_of_one_kind():
    """One of running out of memory, and those that were asked for elsewhere in a step: neither tells of the other."""
    names = ("asked-step000004-001", "asked-step000004-001", "oom-step000009-002", "asked-step000004-001")
    named = [replace(a, path=f"{name}.pickle.gz") for a, name in zip(ranks(16, 16, 64, 16), names, strict=True)]
    assert not [f for f in memory_report(named).findings if f.severity == "warning"]


def test_a_stage_that_has_more_of_the_model_needs_more_by_nature():
    first, *others = ranks(64, 16, 16)
    kinds = {**first.peak.kinds, "parameters": 2 * first.peak.kinds["parameters"]}
    found = memory_report([replace(first, peak=replace(first.peak, kinds=kinds)), *others]).findings
    assert [(f.severity, f.ranks) for f in found if "other ranks" in f.summary] == [("info", (0,))]


def test_a_difference_names_the_line():
    a, b = ranks(16, 16)
    made = Made()
    train(made, 6, activation=16 * MIB, each=lambda s: made.alloc(9 * MIB, forward(77, "cache")))
    peak, end = difference(a, one(made))
    assert peak.changes[0].stack.label == end.changes[0].stack.label == "model.py:77 cache"
    assert end.changes[0].grown == 6 * 9 * MIB == end.after - end.before
    assert not difference(a, b)[0].changes


def grown(*new):
    """Forty lines that hold the same, and new ones that hold more."""
    made = Made()
    for line in range(40):
        made.alloc(2 * MIB, script(100 + line))
    for line in new:
        made.alloc(4 * MIB, script(line))
    return made


def test_a_difference_is_of_all_stacks_and_says_what_it_leaves_out():
    """Beyond the forty largest a stack has no figure of its own: it is not taken for gone."""
    new = range(500, 505)
    (a,), (b,) = analyse(snapshot(grown()), COMPARED_HOLDERS), analyse(snapshot(grown(*new)), COMPARED_HOLDERS)
    whole, _ = difference(a, b)
    (cut,) = analyse(snapshot(grown(*new)))
    partly, _ = difference(a, cut)
    for found, others in ((whole, (0, 0)), (partly, (10 * MIB, 10 * MIB))):
        assert {(c.stack.line, c.before, c.after) for c in found.changes} == {(line, 0, 4 * MIB) for line in new}
        assert found.others == others
    said = "in stacks too small to be compared one by one (10.0 MiB -> 10.0 MiB)"
    assert said in diff_text(a, cut, [partly], color=False, width=120)
    assert "compared one by one" not in diff_text(a, b, [whole], color=False, width=120)


def test_an_answer_survives_json():
    import json

    for made in (fragmented(), innocent("plain")):
        answer = one(made)
        plain = json.loads(json.dumps(as_plain(answer)))
        assert json.dumps(as_plain(from_plain(plain))) == json.dumps(plain)


def test_gradients_optimizer_and_digest_agree_with_the_levels():
    made = Made()
    train(made, 40)
    made.alloc(2 * MIB, gradient())
    made.alloc(2 * MIB, optimizer())
    answer = one(made)
    totals = [sum(column) for column in zip(*answer.overview.bytes, strict=True)]
    assert max(totals) == answer.peak.active and min(totals) >= 0
    assert all(value >= 0 for row in answer.overview.bytes for value in row)
    assert answer.detail is not None and answer.detail.first <= answer.peak.event <= answer.detail.last
    near = [sum(column) for column in zip(*answer.detail.bytes, strict=True)]
    assert near[answer.peak.event - answer.detail.first] == answer.peak.active
