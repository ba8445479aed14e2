"""What one process sees of two devices: memory, streams, events, graphs, other processes' memory, NVML.

With GPU_BOX_SHADOW=1 the last part alone, which looks at values that kernels compute.
"""

import ctypes
import os

import torch
import torch.multiprocessing as mp

GIB = 1 << 30


def devices_and_memory():
    assert torch.cuda.device_count() == 2
    free, total = torch.cuda.mem_get_info(1)
    held = torch.empty(3 * GIB, dtype=torch.uint8, device="cuda:1")
    assert torch.cuda.mem_get_info(1) == (free - 3 * GIB, total) and torch.cuda.memory_allocated(1) == 3 * GIB
    try:
        torch.empty(total, dtype=torch.uint8, device="cuda:1")
        raise AssertionError("a device gave more memory than it has")
    except torch.cuda.OutOfMemoryError as error:
        assert "3.00 GiB is allocated by PyTorch" in str(error), error
    del held
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info(1)[0] == free


def copies_and_fills():
    host = torch.arange(100_000, dtype=torch.float32)
    there = host.pin_memory().to("cuda:0", non_blocking=True)
    across = there.to("cuda:1")
    assert torch.equal(across.cpu(), host)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8):
        assert torch.full((1000,), 3, dtype=dtype, device="cuda").cpu().sum() == 3000


def streams_run_apart_and_events_order_them():
    a, b = torch.cuda.Stream(), torch.cuda.Stream()
    begun, done = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(a):
        begun.record()
        torch.cuda._sleep(400_000_000)  # 0.2 s
        done.record()
    assert not done.query() and not a.query() and b.query()
    b.wait_event(done)
    with torch.cuda.stream(b):
        behind = torch.full((10,), 7.0, device="cuda")
        assert not b.query()
    b.synchronize()
    assert done.query() and behind.tolist() == [7.0] * 10
    assert 150 < begun.elapsed_time(done) < 5_000


def graphs_replay_what_was_captured():
    target = torch.zeros(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    with torch.cuda.graph(graph):
        target.fill_(3.0)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # joins the capture
            target[2:].fill_(5.0)
        torch.cuda.current_stream().wait_stream(side)
    target.zero_()
    assert target.tolist() == [0.0] * 4, "a capture does no work"
    for _ in range(2):
        target.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert target.tolist() == [3.0, 3.0, 5.0, 5.0], target


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [("sizes", ctypes.c_uint * 7), ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p),
                ("count", ctypes.c_uint)]  # fmt: skip


def the_driver_launches_what_triton_compiles():
    """The calls of Triton's own launcher: it is not installed here."""
    here = torch.ones(4, device="cuda")
    driver = ctypes.CDLL("libcuda.so.1")
    module, function, address, number = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    assert driver.cuModuleLoadData(ctypes.byref(module), b"\x7fELF") == 0
    assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"triton_poi_fused_add_0") == 0
    for attribute, expected in ((0, 1024), (3, 0), (4, 32)):  # most threads, local memory, registers
        assert driver.cuFuncGetAttribute(ctypes.byref(number), attribute, function) == 0 and number.value == expected
    assert driver.cuPointerGetAttribute(ctypes.byref(address), 3, ctypes.c_void_p(here.data_ptr())) == 0
    assert address.value == here.data_ptr()
    config = LaunchConfig((1, 1, 1, 32, 1, 1, 0), None, None, 0)
    assert driver.cuLaunchKernelEx(ctypes.byref(config), function, None, None) == 0
    torch.cuda.synchronize()


def _child(queue, answers):
    shared = queue.get()
    answers.put(float(shared.cpu().sum()))
    shared.fill_(2.0)
    torch.cuda.synchronize()
    del shared
    answers.put("done")


def memory_is_shared_with_a_child():
    context = mp.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    child = context.Process(target=_child, args=(queue, answers))
    child.start()
    tensor = torch.ones(1000, device="cuda")
    queue.put(tensor)
    assert answers.get(timeout=120) == 1000.0
    assert answers.get(timeout=120) == "done"
    assert tensor.cpu().sum() == 2000.0
    child.join(60)


def expandable_segments_grow():
    torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    grown = [torch.empty(64 << 20, dtype=torch.uint8, device="cuda") for _ in range(8)]
    assert any(s["is_expandable"] for s in torch.cuda.memory_snapshot())
    del grown
    torch.cuda.empty_cache()
    torch.cuda.memory._set_allocator_settings("expandable_segments:False")


def nvml_and_cuda_agree():
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    assert nvml.nvmlInit_v2() == 0
    count = ctypes.c_uint()
    assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0 and count.value == 2
    assert torch.cuda.utilization(0) >= 0


def operators_without_cudnn():
    assert torch.nn.Conv2d(3, 8, 3).cuda()(torch.ones(1, 3, 8, 8, device="cuda")).shape == (1, 8, 6, 6)
    assert torch.nn.LSTM(8, 8).cuda()(torch.ones(5, 2, 8, device="cuda"))[0].shape == (5, 2, 8)
    query = torch.ones(2, 4, 16, 64, device="cuda", dtype=torch.bfloat16)
    assert torch.nn.functional.scaled_dot_product_attention(query, query, query).shape == query.shape


def training_is_equal_to_the_cpus():
    def losses(device):
        torch.manual_seed(0)
        layers = [torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4)]
        model = torch.nn.Sequential(*layers).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        inputs, labels = torch.randn(64, 16).to(device), torch.randint(0, 4, (64,)).to(device)
        found = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    assert losses("cuda") == losses("cpu")


PARTS = [
    devices_and_memory, copies_and_fills, streams_run_apart_and_events_order_them, graphs_replay_what_was_captured,
    memory_is_shared_with_a_child, expandable_segments_grow, nvml_and_cuda_agree, operators_without_cudnn,
    the_driver_launches_what_triton_compiles,
]  # fmt: skip

if __name__ == "__main__":
    for part in [training_is_equal_to_the_cpus] if os.environ["GPU_BOX_SHADOW"] == "1" else PARTS:
        part()
        print(part.__name__, flush=True)
