"""Names of constructors that matter, of calls that return their argument, and of those that call nothing."""

from __future__ import annotations

import re
from functools import lru_cache

from distdbg.protocol.names import MODEL_WRAPPERS

OPTIMIZER = re.compile(
    r"^(?:(?:[A-Z]\w*)?(?:SGD|Adam|AdamW|RMSprop|Adagrad|LAMB|LARS|Adafactor|AdamW8bit|Adam8bit)|Adamax|Adadelta|LBFGS|"
    r"Rprop|Lion|Muon|ZeroRedundancyOptimizer|create_optimizer(?:_v2)?)$"
)
SCHEDULER = re.compile(
    r"^(?:\w+LR|LRScheduler|CosineAnnealingWarmRestarts|ReduceLROnPlateau|get_\w*schedule\w*|get_scheduler)$"
)
KINDS = {
    "DistributedSampler": "sampler",
    "DataLoader": "loader",
    "StatefulDataLoader": "loader",
    "DistributedDataParallel": "ddp",
    "DDP": "ddp",
    "FullyShardedDataParallel": "fsdp",
    "FSDP": "fsdp",
    "GradScaler": "scaler",
    "Accelerator": "accelerator",
    "autocast": "autocast",
}
#: what accelerate or Fabric gives for a model, an optimizer, a loader: a model of it is DDP's, FSDP's or DeepSpeed's
PREPARED = "prepared"
_PREPARES = re.compile(r"(?:^|\.)_?(?:accelerator|fabric)\.(?:prepare|prepare_model|setup|setup_module)$")
#: samplers of libraries that shuffle by the epoch, as DistributedSampler does
_SAMPLER = re.compile(
    r"^(?!\w*(?:Infinite|Eval|Sequential|Test|Val|Inference|Batch|Training))\w*Distributed\w*Sampler$"
)
#: f(x, …) stands for x
WRAPPERS = frozenset((
    "tqdm", "trange", "enumerate", "iter", "next", "list", "tuple", "cycle", "islice", "zip", "reversed", "compile",
    "track", "convert_sync_batchnorm", "DataParallel", "initialize", "unwrap_model", "MetricLogger",
    "progress_bar", "prepare_model", "prepare_data_loader", "prepare_optimizer", "setup", "setup_module",
    "setup_optimizers", "checkpoint_wrapper", "fully_shard", "DeviceLoader", "PrefetchLoader", "BatchSampler",
))  # fmt: skip
#: x.f(…) stands for x
METHODS = {"to", "cuda", "cpu", "train", "eval", "half", "float", "double", "bfloat16", "requires_grad_"}
ATTRIBUTES = {*MODEL_WRAPPERS, "model_without_ddp"}
#: of Python itself: a function that they are given is not called
CALL_NOTHING = frozenset({"len", "print", "isinstance", "issubclass", "hasattr", "getattr", "setattr", "id", "repr"})
#: layers of torch.nn that have parameters
WITH_PARAMETERS = {
    "Linear", "Bilinear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose2d", "Embedding", "LayerNorm", "GroupNorm",
    "BatchNorm1d", "BatchNorm2d", "LSTM", "GRU", "RNN", "MultiheadAttention", "Parameter",
}  # fmt: skip
#: names of what makes a model of several ranks
WRAPPERS_OF_MODELS = frozenset({name for name, kind in KINDS.items() if kind in ("ddp", "fsdp")} | {"fully_shard"})


@lru_cache(maxsize=10_000)
def kind_by_name(name: str) -> str:
    """The kind of what a call makes, by the dotted name that it calls; empty for most."""
    last = name.rpartition(".")[2]
    if last in KINDS:
        return KINDS[last]
    if last == "fully_shard":
        return "fsdp"
    if _SAMPLER.match(last):
        return "sampler"
    if _PREPARES.search(name):
        return PREPARED
    return "optimizer" if OPTIMIZER.match(last) else "scheduler" if SCHEDULER.match(last) else ""
