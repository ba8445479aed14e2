"""Profiles of a GPU, built by hand in kineto's form: how busy it was, why not, and what is found. No GPU is needed."""

from dataclasses import replace

import pytest

from distdbg.diagnosis.rules import all_rules
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.trace.calls import fused
from distdbg.evidence.trace.events import ProfileTrace
from distdbg.evidence.trace.profile import digest
from distdbg.evidence.trace.text import TraceSplitter
from distdbg.report.profile_document import profile_sections
from distdbg.report.text.renderer import TextRenderer
from distdbg.report.text.screen import Screen
from tests.evidence.trace.cuda_trace import CudaTrace

STEP = 10_000.0
STEPS = 6


def shown(profiles, width):
    return "\n".join(TextRenderer(Screen.of(width=width)).sections(profile_sections(profiles))[1:])


def read(built):
    splitter, trace = TraceSplitter(), ProfileTrace()
    for event in splitter.feed(built.text):
        trace.add(event)
    return digest(trace, splitter.header, "rank3.json", None, lambda place, kind: ())


def findings(profile):
    evidence = RunEvidence({}, 0, (), (), profiles=(profile,))
    return [finding for rule in all_rules() for finding in rule.run(evidence)]


def build(inside):
    """Steps of 10 ms; `inside(trace, begin)` says what is in each."""
    built = CudaTrace()
    built.frame("train.py", 20, "main", 0, STEPS * STEP)
    for n in range(STEPS):
        built.step(n, n * STEP, STEP)
        inside(built, n * STEP)
    return built


def full(built, at, lasts, *, parts=5):
    """Kernels without a gap between them, launched ahead."""
    for n in range(parts):
        begin = at + n * lasts / parts
        built.launch("ampere_bf16_gemm", begin - 2, begin, lasts / parts)


def healthy(built, at):
    full(built, at, 6000)
    built.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", at + 4000, at + 4000, 2400, stream=20)
    full(built, at + 6400, 3600)
    built.host("cpu_op", "aten::item", at + 9000, 990)
    built.host("cpu_op", "aten::_local_scalar_dense", at + 9001, 988)
    built.host("cuda_runtime", "cudaStreamSynchronize", at + 9010, 970, correlation=7)


def test_a_busy_gpu_gets_no_finding_and_its_time_adds_up():
    profile = read(build(healthy))
    assert findings(profile) == []
    assert profile.rank == 3 and profile.steps == STEPS and profile.device.busy > 0.99
    assert sum(profile.parts.values()) == pytest.approx(profile.step_us, rel=0.001)
    assert profile.parts["communication"] == pytest.approx(400) and profile.hidden_us == pytest.approx(2000)


def phased(built, at):
    """The host launches all in 2 ms, and the GPU is at it for 9: the table shows the GPU's time."""
    built.host("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at, 600)
    built.host("cpu_op", "aten::mm", at + 700, 200)
    built.launch("gemm_forward", at + 710, at + 800, 2500)
    built.host("cpu_op", "autograd::engine::evaluate_function: MmBackward0", at + 1000, 400, tid=9)
    built.launch("gemm_backward", at + 1010, at + 3300, 5000)
    built.host("user_annotation", "Optimizer.step#AdamW.step", at + 1500, 300)
    built.host("cpu_op", "aten::_fused_adamw_", at + 1510, 100)
    built.launch("fused_adamw", at + 1520, at + 8300, 1500)
    built.host("cpu_op", "aten::ones_like", at + 1900, 5)


def test_kernels_belong_to_the_phase_that_launched_them():
    profile = read(build(phased))
    assert {k: round(v) for k, v in profile.parts.items()} == {
        "data wait": 600, "preparing": 100, "forward": 2500, "backward": 5000, "communication": 0, "optimizer": 1500,
        "other": 300,
    }  # fmt: skip
    assert findings(profile) == []


def synchronising(built, at):
    full(built, at, 5000)
    built.frame("train.py", 44, "log", at + 100, 5000)
    built.host("python_function", "<built-in method item of Tensor object at 0x7f00>", at + 110, 4900)
    built.host("cpu_op", "aten::item", at + 112, 4895)
    built.launch("Memcpy DtoH (Device -> Pageable)", at + 120, at + 5000, 2, category="gpu_memcpy",
                 call="cudaMemcpyAsync")  # fmt: skip
    built.host("cuda_runtime", "cudaStreamSynchronize", at + 130, 4875)
    full(built, at + 7000, 2500)


def test_what_a_synchronisation_costs_is_the_idle_time_after_it():
    profile = read(build(synchronising))
    (finding,) = findings(profile)
    assert finding.id == "sync-in-step" and finding.ranks == (3,)
    assert "log (train.py, which has it near line 44)" in finding.summary and "20% of the step" in finding.summary
    assert profile.device.idle["synchronisation"] == pytest.approx(0.2, abs=0.01)
    assert "synchronisation" in shown([profile], width=120)
    for width in (40, 80, 120):  # shares go before any figure is cut
        text = shown([profile], width=width)
        assert profile.who in text and "…" not in text.partition("mean of")[0], text
    head, row = shown([profile], width=120).splitlines()[:2]
    assert head.endswith("idle") and row.endswith(f"{(1 - profile.device.busy) * STEP / 1000:.2f}  25%"), row
    assert "idle" not in shown([replace(profile, device=None)], width=120)


def reading_and_copying(built, at):
    full(built, at, 3000)
    built.host("cuda_runtime", "cudaStreamSynchronize", at + 100, 2950)
    built.frame("train.py", 30, "load", at + 3100, 2900)
    built.host("cpu_op", "aten::copy_", at + 3110, 2880)
    built.launch("Memcpy HtoD (Pageable -> Device)", at + 3120, at + 3200, 2700, category="gpu_memcpy",
                 call="cudaMemcpyAsync", takes=2800)  # fmt: skip
    full(built, at + 6000, 4000)


def test_a_copy_after_a_synchronisation_is_no_cost_of_it():
    profile = read(build(reading_and_copying))
    assert [finding.id for finding in findings(profile)] == ["transfer-in-loop"]
    assert profile.device.idle["transfers"] == pytest.approx(0.27, abs=0.01)
    assert profile.device.idle["synchronisation"] == pytest.approx(0.03, abs=0.01)


def reading_here_and_there(built, at):
    """Six lines that read one value each, and the GPU stands idle for 3 % of the step after each."""
    for n in range(6):
        begin = at + n * 1600
        full(built, begin, 1300)
        built.frame("train.py", 50 + n, f"metric{n}", begin + 50, 1300)
        built.host("python_function", "<built-in method item of Tensor object at 0x7f00>", begin + 60, 1280)
        built.host("cpu_op", "aten::item", begin + 62, 1275)
        built.host("cuda_runtime", "cudaStreamSynchronize", begin + 70, 1240)
    full(built, at + 9600, 400)


def test_reads_that_are_too_cheap_for_a_finding_each_are_in_the_table_by_line():
    profile = read(build(reading_here_and_there))
    assert findings(profile) == []
    text = shown([profile], width=120)
    for n in range(6):
        (row,) = (line for line in text.splitlines() if f"metric{n} (train.py" in line)
        assert row.split()[:3] == ["0.300", "3%", "1"] and "reads values by item()" in row, text


def beside_communication(built, at):
    """The same read of a value, while NCCL works on: nothing is lost by it."""
    full(built, at, 5000)
    built.host("cpu_op", "aten::item", at + 112, 4895)
    built.host("cuda_runtime", "cudaStreamSynchronize", at + 130, 4875)
    built.launch("ncclDevKernel_ReduceScatter", at + 90, at + 4000, 3500, stream=20)
    full(built, at + 7500, 2500)


def test_a_read_that_another_stream_outlasts_costs_nothing():
    assert findings(read(build(beside_communication))) == []


def pageable(built, at):
    built.host("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at, 50)
    built.frame("train.py", 30, "load", at + 60, 2000)
    built.host("cpu_op", "aten::copy_", at + 80, 1900)
    built.launch("Memcpy HtoD (Pageable -> Device)", at + 100, at + 110, 1800, category="gpu_memcpy",
                 call="cudaMemcpyAsync", takes=1850)  # fmt: skip
    built.host("cuda_runtime", "cudaStreamSynchronize", at + 1960, 10)
    full(built, at + 2000, 8000)


def test_copies_from_pageable_memory_are_named_and_are_no_synchronisation():
    profile = read(build(pageable))
    (finding,) = findings(profile)
    assert finding.id == "transfer-in-loop" and "load (train.py" in finding.summary
    assert "to the GPU once a step" in finding.summary, "the wait for the copy is no second one"
    assert profile.device.idle["transfers"] > 0.15 > profile.device.idle["synchronisation"]


def pinned(built, at, *, waits):
    full(built, at, 5000)
    built.frame("train.py", 30, "load", at + 100, 5400)
    built.host("cpu_op", "aten::copy_", at + 120, 5300)
    built.launch("Memcpy HtoD (Pinned -> Device)", at + 130, at + 5000, 300, category="gpu_memcpy",
                 call="cudaMemcpyAsync", takes=20)  # fmt: skip
    if waits:
        built.host("cuda_runtime", "cudaStreamSynchronize", at + 160, 5200)
    full(built, at + 6500 if waits else at + 5310, 3490)


def test_a_copy_from_pinned_memory_that_is_waited_for_lacks_non_blocking():
    profile = read(build(lambda built, at: pinned(built, at, waits=True)))
    (finding,) = findings(profile)
    assert finding.id == "transfer-in-loop" and "load (train.py" in finding.summary and "pinned" in finding.summary
    assert "non_blocking=True" in finding.remedy and "pin_memory=" not in finding.remedy
    assert profile.device.idle["transfers"] > 0.1 > profile.device.idle["synchronisation"]
    assert findings(read(build(lambda built, at: pinned(built, at, waits=False)))) == []


def small(built, at):
    for n in range(600):
        built.launch("void at::native::vectorized_elementwise_kernel", at + n * 16, at + n * 16 + 8, 4)


def test_small_kernels():
    profile = read(build(small))
    (finding,) = findings(profile)
    assert finding.id == "small-kernels" and "100% of 600 kernels" in finding.summary
    assert profile.device.busy == pytest.approx(0.24, abs=0.01)


def allocating(built, at):
    full(built, at, 6000)
    built.frame("train.py", 51, "grow", at + 6000, 3000)
    built.host("cuda_runtime", "cudaMalloc", at + 6100, 1500)
    built.host("cuda_runtime", "cudaFree", at + 7700, 900)
    full(built, at + 8800, 1200)


def test_allocations_in_the_steps():
    found = findings(read(build(allocating)))
    assert {finding.id for finding in found} == {"alloc-in-loop"}
    assert any("grow (train.py" in f.summary and "cudaMalloc once a step" in f.summary for f in found)


def starving(built, at):
    built.host("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at + 100, 4000)
    full(built, at + 4200, 5700)


def hiding(built, at):
    """The loader is waited for as long, while the GPU still has work."""
    built.host("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at + 100, 4000)
    full(built, at, 9900)


def test_waiting_for_data_counts_only_where_the_gpu_waits_too():
    (finding,) = findings(read(build(starving)))
    assert finding.id == "data-starved" and finding.confidence == "certain" and "has workers" in finding.cause
    assert findings(read(build(hiding))) == []


def multiplying(kernel):
    def inside(built, at):
        full(built, at, 6000)
        built.launch(kernel, at + 5990, at + 6000, 3900)

    return inside


@pytest.mark.parametrize("kernel", ["ampere_sgemm_128x64_nn", "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64"])
def test_float32_products_without_tf32_are_reported_as_a_choice(kernel):
    (finding,) = findings(read(build(multiplying(kernel))))
    assert finding.id == "tensor-float-off" and finding.severity == "info" and "39% of the step" in finding.summary


@pytest.mark.parametrize("kernel", ["cutlass_80_tensorop_s1688gemm_128x128", "sm80_xmma_gemm_f32f32_tf32f32_f32_tn",
                                    "sm90_xmma_gemm_bf16bf16_bf16f32_f32"])  # fmt: skip
def test_products_in_tf32_and_bfloat16_are_none(kernel):
    assert findings(read(build(multiplying(kernel)))) == []


def test_a_gpu_without_tf32_has_none_to_switch_on():
    assert findings(replace(read(build(multiplying("volta_sgemm_128x64_nn"))), compute_major=7)) == []


def test_without_steps_the_times_are_reported_and_nothing_is_found():
    built = CudaTrace()
    built.host("cpu_op", "aten::mm", 0, 100)
    synchronising(built, 0)
    profile = read(built)
    assert profile.steps == 0 and findings(profile) == [] and profile.step_us > 0
    assert ("the steps of rank3.json", "neither ProfilerStep nor an optimizer's steps are in it") in profile.unknown


def arguments(**given):
    known = {"kind": "c10::Half", "mask": "", "dropout": "0.", "shape": [2, 4, 64, 32], "strides": [1, 1, 1, 1]}
    known |= given
    return {
        "Input type": [known["kind"]] * 3 + [known["mask"], "Scalar", "Scalar", "", "Scalar"],
        "Input Dims": [known["shape"]] * 3 + [[]] * 5,
        "Input Strides": [known["strides"]] * 3 + [[]] * 5,
        "Concrete Inputs": ["", "", "", "", known["dropout"], "False", "", "False"],
    }


@pytest.mark.parametrize(
    ("given", "device", "kernel"),
    [
        ({}, True, "flash"),
        ({"kind": "float"}, True, "memory-efficient"),
        ({"mask": "c10::Half"}, True, "memory-efficient"),
        ({"kind": "double"}, True, ""),
        ({"shape": [4, 64, 32]}, True, ""),
        ({"strides": [1, 1, 1, 2]}, True, ""),
        ({"kind": "float"}, False, "flash"),
        ({"kind": "float", "dropout": "0.1"}, False, ""),
    ],
)
def test_which_kernel_would_have_done(given, device, kernel):
    assert fused(arguments(**given), device=device) == kernel


def test_without_shapes_it_is_not_known():
    assert fused(None, device=True) is None and fused({"Input type": ["float"]}, device=True) is None


def blocking_copy(stacks):
    """A copy of a few bytes to ordinary memory blocks the host for 6 of 10 ms, while the GPU has little to do."""

    def inside(built, at):
        for n in range(20):
            built.launch("elementwise_kernel", at + 50 * n, at + 50 * n + 20, 40)
        if stacks:
            built.frame("train.py", 44, "log", at + 1100, 6100)
        built.host("cpu_op", "aten::copy_", at + 1110, 6040)
        built.launch("Memcpy DtoH (Device -> Pageable)", at + 1120, at + 7100, 2, category="gpu_memcpy",
                     call="cudaMemcpyAsync", takes=6000, size=704)  # fmt: skip
        built.host("cuda_runtime", "cudaStreamSynchronize", at + 7122, 5)
        for n in range(20):
            built.launch("elementwise_kernel", at + 7300 + 50 * n, at + 7320 + 50 * n, 40)

    return inside


@pytest.mark.parametrize(("stacks", "function"), [(True, "log"), (False, "main")])
def test_copy_to_the_host_that_blocks_is_a_synchronisation(stacks, function):
    profile = read(build(blocking_copy(stacks)))
    (finding,) = findings(profile)
    assert finding.id == "sync-in-step" and finding.ranks == (3,)
    (costly,) = [one for one in profile.costly if one.kind == "wait"]
    assert (costly.calls, costly.count, costly.us) == (1, 704, pytest.approx(6007, abs=1))
    assert costly.place.function == function
    assert "704 bytes" in finding.summary and "6.01 ms" in finding.summary
    assert profile.device.idle["synchronisation"] > 0.5 > profile.device.idle["host"]


def pinned_copy(built, at):
    """The same copy to pinned memory returns at once, and the GPU is busy."""
    full(built, at, 10_000)
    built.launch("Memcpy DtoH (Device -> Pinned)", at + 100, at + 9000, 2, category="gpu_memcpy",
                 call="cudaMemcpyAsync", size=704)  # fmt: skip


def pageable_copy_of_a_busy_gpu(built, at):
    """The host waits for the GPU at the end of the step, which has work until then: nothing is lost."""
    full(built, at, 9990)
    built.launch("Memcpy DtoH (Device -> Pageable)", at + 1000, at + 9985, 2, category="gpu_memcpy",
                 call="cudaMemcpyAsync", takes=8990, size=704)  # fmt: skip


@pytest.mark.parametrize("inside", [pinned_copy, pageable_copy_of_a_busy_gpu])
def test_copy_that_leaves_the_gpu_busy_gets_no_finding(inside):
    assert findings(read(build(inside))) == []
