"""What ddp.py and fsdp.py have in common: a small GPT, its text, its optimizer. Copy it along with them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pydoc_data.topics import topics  # the pages behind help("for"): English that every Python ships

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler


@dataclass(frozen=True)
class Config:
    vocabulary: int = 256  # bytes: no tokenizer to ship
    context: int = 64
    layers: int = 2
    heads: int = 4
    width: int = 96
    dropout: float = 0.1


class Text(Dataset[tuple[Tensor, Tensor]]):
    """The topics as bytes, cut into windows: (input, the same one byte later), each of shape [context]."""

    def __init__(self, split: str, context: int, validation: float = 0.05) -> None:
        # Sorted: ranks must agree on sample 17, and the order of this dict is nobody's promise.
        pages = "\n\n".join(topics[name] for name in sorted(topics))
        text = torch.frombuffer(bytearray(pages, "utf-8"), dtype=torch.uint8)
        border = int(len(text) * (1 - validation))
        self.text = text[:border] if split == "train" else text[border:]
        self.context = context

    def __len__(self) -> int:
        return (len(self.text) - 1) // self.context

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        window = self.text[index * self.context :][: self.context + 1].long()
        return window[:-1], window[1:]


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.dropout
        self.norm_1 = nn.RMSNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.project = nn.Linear(config.width, config.width, bias=False)
        self.norm_2 = nn.RMSNorm(config.width)
        self.up = nn.Linear(config.width, 4 * config.width, bias=False)
        self.down = nn.Linear(4 * config.width, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + F.dropout(self.project(mixed), self.dropout, self.training)
        return x + F.dropout(self.down(F.gelu(self.up(self.norm_2(x)))), self.dropout, self.training)


class GPT(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        for name, weight in self.named_parameters():
            if weight.dim() >= 2:  # what feeds the residual stream starts smaller: its variance adds up over the layers
                into_residual = name.endswith(("project.weight", "down.weight"))
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * config.layers) if into_residual else 0.02)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The mean cross entropy, in nats a byte, of int64 [batch, length] inputs and targets."""
        x = self.tokens(inputs) + self.positions(torch.arange(inputs.shape[1], device=inputs.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())  # float: bf16 has 8 bits of mantissa


class ResumableSampler(DistributedSampler[tuple[Tensor, Tensor]]):
    """A DistributedSampler that can begin in the middle of an epoch, `start` samples in."""

    start = 0

    def __iter__(self) -> Iterator[int]:
        return islice(super().__iter__(), self.start, None)


def loader(split: str, batch_size: int) -> DataLoader[tuple[Tensor, Tensor]]:
    """This rank's share of a split, shuffled anew in each epoch where it is for training (with set_epoch)."""
    # All ranks get as many batches: one that had more would wait for the others in vain. Training drops what does not
    # go round, and all its batches are equal; what one epoch leaves out, the next one shuffles in. Validation leaves
    # nothing out: the sampler gives some windows twice instead, and the last batch is shorter, on all ranks.
    training = split == "train"
    text = Text(split, Config.context)
    sampler = ResumableSampler(text, shuffle=training, drop_last=training)
    # A generator of its own: each epoch draws a seed for loader workers, and that must not shift the dropout.
    # No workers here, the text is in memory; from a disk it would take num_workers=4, persistent_workers=True.
    batches = DataLoader(
        text,
        batch_size,
        sampler=sampler,
        drop_last=training,
        pin_memory=torch.cuda.is_available(),
        generator=torch.Generator(),
    )
    if len(batches) == 0:  # or a job would end well that has trained nothing
        share = f"{len(text)} windows of text are no batch of {batch_size} for each of {sampler.num_replicas} ranks"
        raise SystemExit(f"{share}: take a smaller --batch-size")
    return batches


def adamw(model: nn.Module, lr: float) -> torch.optim.AdamW:
    """AdamW that decays matrices but no gains or biases: to pull a norm's gain to zero regularizes nothing."""
    weights = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in weights if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in weights if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), fused=weights[0].is_cuda)


def warmup_cosine(optimizer: torch.optim.Optimizer, warmup: int, steps: int) -> torch.optim.lr_scheduler.LambdaLR:
    """Linear warm-up, then a cosine down to a tenth. It counts optimizer steps, not batches."""

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        progress = min(1.0, (step - warmup) / max(1, steps - warmup))
        return 0.1 + 0.45 * (1 + math.cos(math.pi * progress))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
