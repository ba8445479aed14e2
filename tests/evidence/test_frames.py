"""Whose code a frame is, and what it is busy with, for every place in which Python code is found."""

from __future__ import annotations

import pytest

from distdbg.evidence.frames import (
    BACKWARD,
    DATA,
    FORWARD,
    INIT,
    OPTIMIZER,
    Activity,
    AllocatedFor,
    Origin,
    TorchCall,
    activity_of,
    allocated_for,
    module_path,
    origin_of,
    package_of,
    phase_of,
    torch_call_of,
)

SITE = "/opt/conda/lib/python3.11/site-packages"
ORIGINS = {
    Origin.USER: (
        "/home/me/train.py",
        "train.py",
        "/home/me/train",  # a script without a suffix
        "/home/me/torch/train.py",  # a folder that only has the name of a package
        "/home/me/torch/nn/my_model.py",
        "/home/me/torch/distributed/train.py",
        "/home/me/accelerate/train.py",
        "/home/me/transformers/data/loader.py",
        "/home/me/ray/train.py",
        "/home/me/trl/train.py",
        "/home/me/lib/python/train.py",
        "/home/me/threading.py",
        "/home/me/multiprocessing/queues.py",
        "/home/me/distdbg/launch/ddp.py",  # the scripts of this repository
        "/home/me/distdbg/tests/programs/waits.py",
        "/workspace/Megatron-LM/pretrain_gpt.py",
        "/workspace/DeepSpeedExamples/training/cifar/train.py",
        "/work/notebook.ipynb",
        "/tmp/ipykernel_4242/1234567890.py",
        "<ipython-input-3-0123456789ab>",
        "<stdin>",
        "/root/.cache/huggingface/modules/transformers_modules/me/model/modeling_me.py",
    ),
    Origin.TORCH: (
        f"{SITE}/torch/_tensor.py",
        "/usr/lib/python3/dist-packages/torch/nn/modules/module.py",
        "/home/me/.venv/lib/python3.14t/site-packages/torch/optim/adamw.py",
        "/home/me/pytorch/torch/nn/modules/linear.py",
        "/home/me/src/pytorch-2.9/torch/distributed/distributed_c10d.py",
        "/opt/pytorch/pytorch/torch/_dynamo/eval_frame.py",
        "/build/torch/autograd/graph.py",
        "torch/utils/data/dataloader.py",
        "torch/distributed/fsdp/_fully_shard/_fsdp_state.py",
    ),
    Origin.FRAMEWORK: (
        f"{SITE}/transformers/trainer.py",
        f"{SITE}/lightning/pytorch/trainer/trainer.py",
        f"{SITE}/pytorch_lightning/loops/fit_loop.py",
        f"{SITE}/accelerate/accelerator.py",
        f"{SITE}/deepspeed/runtime/engine.py",
        f"{SITE}/ray/train/_internal/session.py",
        "/home/me/accelerate/src/accelerate/accelerator.py",
        "/workspace/Megatron-LM/megatron/core/parallel_state.py",
        "/home/me/DeepSpeed/deepspeed/runtime/zero/stage3.py",
        "/home/me/ray/python/ray/train/v2/api/data_parallel_trainer.py",
        "/home/me/trl/trl/trainer/sft_trainer.py",
        "/home/me/torchtitan/torchtitan/train.py",
    ),
    Origin.LAUNCHER: (
        f"{SITE}/torch/distributed/run.py",
        f"{SITE}/torch/distributed/elastic/agent/server/api.py",
        f"{SITE}/torch/multiprocessing/spawn.py",
        f"{SITE}/accelerate/commands/launch.py",
        f"{SITE}/deepspeed/launcher/launch.py",
        f"{SITE}/ray/_private/workers/default_worker.py",
        f"{SITE}/lightning/fabric/strategies/launchers/subprocess_script.py",
        "/opt/conda/bin/torchrun",
    ),
    Origin.LIBRARY: (
        f"{SITE}/numpy/core/fromnumeric.py",
        f"{SITE}/six.py",
        f"{SITE}/old-1.0-py3.11.egg/old/module.py",
        "numpy/core/fromnumeric.py",
        "/usr/lib/python3/dist-packages/yaml/__init__.py",
    ),
    Origin.STANDARD: (
        "/usr/lib/python3.10/threading.py",
        "/opt/conda/lib/python3.11/multiprocessing/queues.py",
        "/root/.local/share/uv/python/cpython-3.13.1-linux-x86_64-gnu/lib/python3.13/logging/__init__.py",
        "/usr/lib64/python3.14/asyncio/base_events.py",
        "/usr/lib/python311.zip/selectors.py",
        "/home/me/cpython/Lib/threading.py",
        "<frozen importlib._bootstrap>",
        "<frozen runpy>",
        "threading.py",
        "concurrent/futures/thread.py",
    ),
    Origin.OURS: (
        f"{SITE}/distdbg/worker/session.py",
        f"{SITE}/distdbg/launch/agent/agent.py",
        "/home/me/distdbg/distdbg/launch/agent/agent.py",
        "/opt/tools/distdbg/worker/boot.py",
    ),
    Origin.GENERATED: (
        "<string>",
        "<eval_with_key>.12",
        "<__array_function__ internals>",
        "/tmp/torchinductor_me/ab/cabcdef.py",
        "/home/me/torch_compile_debug/run_2026/torchinductor/model__0/output_code.py",
    ),
    Origin.NATIVE: ("", "libtorch_cpu.so", "/usr/lib/x86_64-linux-gnu/libc.so.6", "python3.11", "/usr/bin/python3.11",
                    "/pytorch/aten/src/ATen/native/Linear.cpp"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("file", "origin"), [(file, origin) for origin, files in ORIGINS.items() for file in files], ids=str
)
def test_whose_code_a_file_is(file, origin):
    assert origin_of(file) is origin


@pytest.mark.parametrize(
    ("file", "function", "activity"),
    [
        (f"{SITE}/torch/autograd/graph.py", "_engine_run_backward", Activity.AUTOGRAD),
        ("/home/me/pytorch/torch/distributed/distributed_c10d.py", "all_reduce", Activity.COLLECTIVE),
        (f"{SITE}/torch/distributed/distributed_c10d.py", "new_group", Activity.GROUP_SETUP),
        (f"{SITE}/torch/distributed/rendezvous.py", "_tcp_rendezvous_handler", Activity.GROUP_SETUP),
        (f"{SITE}/torch/distributed/pipelining/schedules.py", "step", Activity.DISTRIBUTED),
        (f"{SITE}/torch/nn/parallel/distributed.py", "forward", Activity.DATA_PARALLEL),
        (f"{SITE}/torch/utils/data/dataloader.py", "_try_get_data", Activity.LOADER),
        (f"{SITE}/torch/utils/data/_utils/worker.py", "_worker_loop", Activity.LOADER_WORKER),
        ("/usr/lib/python3.10/threading.py", "wait", Activity.LOCK),
        ("/usr/lib/python3.13/threading.py", "Condition.wait", Activity.LOCK),
        ("/usr/lib/python3.13/threading.py", "Thread._bootstrap_inner", Activity.THREAD_START),
        ("/usr/lib/python3.13/threading.py", "_shutdown", Activity.SHUTDOWN),
        ("queue.py", "get", Activity.LOCK),
        ("/usr/lib/python3.12/multiprocessing/process.py", "BaseProcess._bootstrap", Activity.CHILD_START),
        ("/usr/lib/python3.12/multiprocessing/connection.py", "Connection._recv", Activity.CHILD),
        ("/usr/lib/python3.12/multiprocessing/queues.py", "Queue.get", Activity.SHARED_LOCK),
        ("/usr/lib/python3.12/subprocess.py", "Popen.wait", Activity.SUBPROCESS),
        (f"{SITE}/torch/autograd/function.py", "apply", Activity.OTHER),
        ("/home/me/threading.py", "wait", Activity.OTHER),
        ("/home/me/torch/train.py", "all_reduce", Activity.OTHER),
        ("", "epoll_wait", Activity.OTHER),
    ],
)
def test_what_a_frame_is_busy_with(file, function, activity):
    assert activity_of(file, function) is activity


def test_the_path_below_sys_path_is_the_same_wherever_a_package_is_installed():
    places = (f"{SITE}/torch/_tensor.py", "/home/me/pytorch/torch/_tensor.py", "torch/_tensor.py")
    assert {module_path(file) for file in places} == {"torch/_tensor.py"}
    assert module_path("/home/me/ray/python/ray/train/api.py") == "ray/train/api.py"
    assert module_path("<frozen importlib._bootstrap>") == "importlib/_bootstrap.py"
    assert module_path("/home/me/train.py") == "/home/me/train.py"


@pytest.mark.parametrize(
    ("file", "package"),
    [
        (f"{SITE}/torch/_tensor.py", "torch"),
        (f"{SITE}/six.py", "six"),
        ("/usr/lib/python3.11/threading.py", "threading"),
        ("<frozen importlib._bootstrap>", "importlib"),
        ("/home/me/train.py", "train"),
        ("libtorch_cpu.so", "libtorch_cpu"),
        ("", "C"),
    ],
)
def test_a_files_package(file, package):
    assert package_of(file) == package


@pytest.mark.parametrize(
    ("file", "function", "phase"),
    [
        (f"{SITE}/torch/utils/data/_utils/collate.py", "collate", DATA),
        ("/src/pytorch/torch/optim/adamw.py", "AdamW.step", OPTIMIZER),
        ("/home/me/my_optim.py", "step", OPTIMIZER),
        (f"{SITE}/torch/utils/checkpoint.py", "recompute_fn", BACKWARD),
        (f"{SITE}/torch/_tensor.py", "backward", BACKWARD),
        (f"{SITE}/torch/nn/modules/module.py", "Module._call_impl", FORWARD),
        ("/home/me/model.py", "forward", FORWARD),
        (f"{SITE}/torch/nn/modules/module.py", "_apply", INIT),
        ("/home/me/model.py", "Net.__init__", INIT),
        ("/home/me/train.py", "step", ""),
        ("/home/me/train.py", "to", ""),
    ],
)
def test_the_phase_that_a_frame_belongs_to(file, function, phase):
    assert phase_of(file, function) == phase


def test_what_torch_and_frameworks_allocate_for():
    parallel = f"{SITE}/torch/nn/parallel"
    assert allocated_for("/src/torch/torch/distributed/fsdp/_param.py", "_alloc_storage") is AllocatedFor.PARAMETERS
    assert allocated_for(f"{parallel}/distributed.py", "_ddp_init_helper") is AllocatedFor.BUCKETS
    assert allocated_for(f"{parallel}/comm.py", "scatter") is AllocatedFor.BATCH
    assert allocated_for(f"{SITE}/accelerate/utils/operations.py", "send_to_device") is AllocatedFor.BATCH_OF_FRAMEWORK
    assert allocated_for("/home/me/torch/parallel.py", "scatter") is None


def test_calls_of_torch_in_a_profile():
    assert torch_call_of("torch/nn/parallel/distributed.py", "_sync_buffers") is TorchCall.BUFFERS
    assert torch_call_of(f"{SITE}/torch/_tensor_str.py", "_str") is TorchCall.PRINT
    assert torch_call_of(f"{SITE}/torch/nn/parallel/distributed.py", "forward") is None
