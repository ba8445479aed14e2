"""A training script of a common size: nothing is wrong with it, unless --plant names mistakes that it is to make.

Each mistake stands in another function, or another class, than the line that shows it; that line bears its id.

Arguments: --plant none
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import math
import os
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR, LinearLR, OneCycleLR
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset

WORDS, LENGTH, CLASSES = 32, 4, 5


@dataclass(frozen=True)
class Config:
    """All that a run can be told. `items` are those of one rank; `amp` is a dtype, or empty."""

    folder: str
    epochs: int = 3
    items: int = 26
    batch_size: int = 2
    accumulate: int = 2
    rate: float = 1e-3
    layer_decay: float = 0.8
    weight_decay: float = 0.05
    clip: float = 1.0
    width: int = 8
    layers: int = 6
    dropout: float = 0.1
    seed: int = 17
    amp: str = ""
    fsdp: bool = False
    fsdp1: bool = False
    plant: frozenset[str] = frozenset()

    def has(self, mistake: str) -> bool:
        return mistake in self.plant


def read_config(words: list[str]) -> Config:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default=".")
    parser.add_argument("--plant", default="none")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--items", type=int, default=26)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--amp", default="", choices=["", "float16", "bfloat16"])
    parser.add_argument("--fsdp", action="store_true")
    parser.add_argument("--fsdp1", action="store_true")
    chosen = vars(parser.parse_args(words))
    chosen["plant"] = frozenset(chosen["plant"].split(","))
    return Config(**chosen)


class Sentences(Dataset):
    """Words drawn at random; the class is the rest of their sum."""

    def __init__(self, count: int, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.words = torch.randint(WORDS, (count, LENGTH), generator=draw)
        self.classes = self.words.sum(1) % CLASSES

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.words[number], self.classes[number]


class Block(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, width)
        self.narrow = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.dropout(self.narrow(functional.gelu(self.widen(self.norm(x)))))


class Classifier(nn.Module):
    """`cut` names mistakes: a path through which no gradient comes."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, config.width)
        self.layers = nn.ModuleList(Block(config.width, config.dropout) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, CLASSES)
        self.cut = config.has("params-without-grad")
        self.mixes = config.has("autocast-dtypes-mixed")

    def forward(self, words: torch.Tensor, shift: torch.Tensor | None = None) -> torch.Tensor:
        x = self.words(words)
        x = (x.detach() if self.cut else x).mean(1)
        x = x if shift is None else x + shift
        for layer in self.layers:
            x = layer(x)
        with self.precision():  # autocast-dtypes-mixed
            return self.head(self.norm(x))

    def precision(self) -> contextlib.AbstractContextManager[object]:
        return torch.autocast("cpu", dtype=torch.bfloat16) if self.mixes else contextlib.nullcontext()


def wrap(model: nn.Module, config: Config) -> nn.Module:
    if config.fsdp1:
        return FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))
    if not config.fsdp:
        model = DistributedDataParallel(model, find_unused_parameters=config.has("params-without-grad"))
        if config.has("ddp-without-device-ids"):  # as where each rank has a GPU of its own, and all stay at the first
            model.device_type, model.device = "cuda", torch.device("cuda", dist.get_rank() + 1)
        return model
    policy = MixedPrecisionPolicy()
    if config.has("fsdp-dtype-mismatch"):
        model, policy = model.to(torch.bfloat16), MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    for number, layer in enumerate(model.layers):
        if not config.has("fsdp-single-unit") and not (number == 2 and config.has("fsdp-layer-left-out")):
            fully_shard(layer, mp_policy=policy)
    return fully_shard(model, mp_policy=policy)


def loaders_of(config: Config) -> tuple[DataLoader, DataLoader]:
    ranks, rank = dist.get_world_size(), dist.get_rank()
    data = Sentences(config.items * ranks, config.seed)
    sampler, shuffle = None, False
    if config.has("loader-lengths-differ"):
        data = Subset(data, range(rank, len(data) - 4 * rank, ranks))
    elif config.has("data-not-sharded"):
        shuffle = True
    else:
        sampler = DistributedSampler(data, seed=config.seed)
    draw = torch.Generator().manual_seed(config.seed)
    training = DataLoader(data, config.batch_size, shuffle=shuffle, sampler=sampler, generator=draw)
    held_out = Sentences(16, config.seed + 1)
    return training, DataLoader(held_out, config.batch_size)


def layer_of(name: str, config: Config) -> int:
    """0 for the embedding, then the layers; what comes behind them has the full rate."""
    first = 1 if config.has("layer-rates-mixed") else 0
    for number in range(first, config.layers):
        if f"layers.{number}." in name:
            return number + 1
    return 0 if name.startswith("words") else config.layers + 1


def is_exempt(name: str, parameter: nn.Parameter, config: Config) -> bool:
    if config.has("decayed-norms"):
        return name.endswith("bias") or "LayerNorm.weight" in name
    return parameter.ndim < 2


def groups_of(model: nn.Module, config: Config) -> list[dict[str, object]]:
    groups: dict[tuple[int, bool], list[nn.Parameter]] = {}
    for full_name, parameter in model.named_parameters():
        name = full_name.replace("_fsdp_wrapped_module.", "")
        groups.setdefault((layer_of(name, config), is_exempt(name, parameter, config)), []).append(parameter)
    return [
        {
            "params": parameters,
            "lr": config.rate * config.layer_decay ** (config.layers + 1 - number),
            "weight_decay": 0.0 if exempt else config.weight_decay,
        }
        for (number, exempt), parameters in groups.items()
    ]


def scheduler_of(optimizer: torch.optim.Optimizer, config: Config, steps: int) -> torch.optim.lr_scheduler.LRScheduler:
    if config.has("scheduler-cadence"):
        return OneCycleLR(optimizer, config.rate, total_steps=steps)  # scheduler-cadence
    if config.has("warmup-too-long"):
        return LinearLR(optimizer, total_iters=10 * steps)  # warmup-too-long
    if config.has("learning-rate-zero"):
        return LambdaLR(optimizer, lambda step: max(0.0, 1 - 2 * step / steps))  # learning-rate-zero
    return LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 5) * (1 - step / (steps + 1)))


class Metrics:
    """Means of an epoch."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.sums: dict[str, object] = {}
        self.counts: dict[str, int] = {}

    def add(self, name: str, value: torch.Tensor) -> None:
        kept = value if self.config.has("graph-retained") else value.item()
        self.sums[name] = self.sums.get(name, 0.0) + kept
        self.counts[name] = self.counts.get(name, 0) + 1

    def means(self) -> dict[str, float]:
        return {name: float(total) / self.counts[name] for name, total in self.sums.items()}


class Saver:
    """Writes the model's own names, under another name first."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.path = Path(config.folder) / "last.pt"

    def save(self, model: nn.Module, epoch: int) -> None:
        state = self.state_of(model)
        if dist.get_rank() == 0 or self.config.has("checkpoint-race"):
            self.write({"model": state, "epoch": epoch})
        dist.barrier()

    def state_of(self, model: nn.Module) -> dict[str, torch.Tensor]:
        if isinstance(model, (FSDPModule, FullyShardedDataParallel)):
            # of FSDP1 on the CPU torch frees what it has offloaded
            offload = not self.config.has("full-state-dict-gather") and not self.config.fsdp1
            options = StateDictOptions(full_state_dict=True, cpu_offload=offload)
            return get_model_state_dict(model, options=options)  # full-state-dict-gather
        return (model if self.config.has("checkpoint-module-prefix") else model.module).state_dict()

    def write(self, state: dict[str, object]) -> None:
        if self.config.has("checkpoint-not-atomic") or self.config.has("checkpoint-race"):
            torch.save(state, self.path)  # checkpoint-not-atomic, checkpoint-race
        else:
            part = self.path.with_suffix(".part")
            torch.save(state, part)  # checkpoint-module-prefix
            os.replace(part, self.path)


class Trainer:
    def __init__(self, config: Config) -> None:
        self.config = config
        torch.manual_seed(config.seed)
        net = Classifier(config)
        groups = groups_of(net, config)
        if config.has("params-not-optimized"):
            net.head = nn.Linear(config.width, CLASSES)
        self.model = wrap(net, config)
        if config.fsdp or config.fsdp1:
            groups = groups_of(self.model, config)
            if config.has("params-not-optimized"):
                head = set(map(id, self.model.head.parameters()))
                groups = [{**group, "params": [p for p in group["params"] if id(p) not in head]} for group in groups]
        self.optimizer = torch.optim.AdamW(groups, lr=config.rate)
        self.loader, self.held_out = loaders_of(config)
        self.per_epoch = -(-len(self.loader) // config.accumulate)
        self.scheduler = scheduler_of(self.optimizer, config, self.per_epoch * config.epochs + 1)
        scaled = config.amp == "float16" and not config.has("scaler-misused")
        self.scaler = torch.amp.GradScaler("cpu", enabled=scaled)
        self.saver = Saver(config)
        self.metrics = Metrics(config)
        self.shift = torch.zeros(config.width, device="meta") if config.has("mixed-devices") else None
        if not config.has("seeds-identical"):
            torch.manual_seed(config.seed + dist.get_rank())
        if config.has("weights-desynced"):
            nn.init.normal_(net.head.weight)

    def fit(self) -> dict[str, float]:
        for epoch in range(self.config.epochs):
            if hasattr(self.loader.sampler, "set_epoch") and not self.config.has("missing-set-epoch"):
                self.loader.sampler.set_epoch(epoch)
            self.train_epoch()
            self.evaluate()
            self.saver.save(self.model, epoch)
        return self.metrics.means()

    def train_epoch(self) -> None:
        if not self.config.has("eval-mode-wrong"):
            self.model.train()
        self.optimizer.zero_grad()
        last = len(self.loader) - 1
        # missing-set-epoch, data-not-sharded, loader-lengths-differ, leftover-steps-dropped:
        for number, (words, classes) in enumerate(self.loader):
            due = (number + 1) % self.config.accumulate == 0
            due = due or (number == last and not self.config.has("leftover-steps-dropped"))
            with self.unsynced(number) if self.leaves_out(number, due=due) else contextlib.nullcontext():
                loss = self.micro_batch(words, classes)
            self.metrics.add("loss", loss)
            if due:
                self.update()
        if self.config.has("scheduler-cadence"):
            self.scheduler.step()

    def leaves_out(self, number: int, *, due: bool) -> bool:
        """Whether this micro-batch's gradients are not reduced."""
        if self.config.has("loader-lengths-differ"):
            return not due or number >= self.config.items // self.config.batch_size - 1
        return not due and not self.config.has("redundant-allreduce")

    @contextlib.contextmanager
    def unsynced(self, number: int) -> object:
        if not isinstance(self.model, FSDPModule):
            with self.model.no_sync():
                yield number
            return
        self.model.set_requires_gradient_sync(False)
        yield number
        self.model.set_requires_gradient_sync(True)

    def micro_batch(self, words: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        loss = self.loss_of(words, classes)
        scaled = self.scaler.scale(loss)
        # loss-not-divided, graph-retained, loss-outside-autocast, redundant-allreduce, loss-never-changes, non-finite:
        scaled.backward()
        return loss if self.config.has("graph-retained") else loss.detach()

    def loss_of(self, words: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        dtype = getattr(torch, self.config.amp or "bfloat16")
        with torch.autocast("cpu", dtype=dtype, enabled=bool(self.config.amp)):
            # ddp-without-device-ids, eval-mode-wrong, fsdp-single-unit, fsdp-layer-left-out, fsdp-dtype-mismatch:
            outputs = self.model(words)
            if not self.config.has("loss-outside-autocast"):
                loss = functional.cross_entropy(outputs, classes)
        if self.config.has("loss-outside-autocast"):
            loss = functional.cross_entropy(outputs, classes)
        if self.config.has("non-finite") or self.config.has("loss-never-changes"):
            loss = loss * (math.nan if self.config.has("non-finite") else 0.0)
        return loss if self.config.has("loss-not-divided") else loss / self.config.accumulate

    def update(self) -> None:
        if not self.config.has("clip-before-unscale"):
            self.scaler.unscale_(self.optimizer)
        self.limit()
        if self.config.has("scheduler-before-optimizer"):
            self.scheduler.step()
        # decayed-norms, layer-rates-mixed, missing-zero-grad, params-not-optimized, params-without-grad,
        # scaler-misused, scheduler-before-optimizer, seeds-identical:
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if not self.config.has("missing-zero-grad"):
            self.optimizer.zero_grad()
        if not self.config.has("scheduler-cadence") and not self.config.has("scheduler-before-optimizer"):
            self.scheduler.step()

    def limit(self) -> None:
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)  # clip-before-unscale

    def evaluate(self) -> None:
        self.model.eval()
        graphs = self.config.has("eval-with-grad")
        with contextlib.nullcontext() if graphs else torch.no_grad():
            for words, classes in self.held_out:
                self.metrics.add("held out", self.score(words, classes).detach())

    def score(self, words: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        outputs = self.model(words, self.shift)  # eval-with-grad, mixed-devices
        return (outputs.argmax(1) == classes).float().mean()


def gpus() -> contextlib.AbstractContextManager[object]:
    """What torch says where there are some, and the first one is the current one."""
    return mock.patch.multiple(torch.cuda, is_initialized=lambda: True, current_device=lambda: 0)


def main() -> None:
    config = read_config(sys.argv[1:])
    dist.init_process_group("gloo")
    if config.has("versions-differ"):  # a second copy of a library, found on one rank's path only
        sys.modules["datasets"] = types.SimpleNamespace(__version__=f"3.{dist.get_rank()}")
    trainer = Trainer(config)
    with gpus() if config.has("ddp-without-device-ids") else contextlib.nullcontext():
        means = trainer.fit()
    if dist.get_rank() == 0:
        print(" ".join(f"{name} {value:.3f}" for name, value in means.items()))
    sys.modules.pop("datasets", None)
    dist.barrier()
    del trainer
    gc.collect()  # the model and its hooks go before the group they use
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
