import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.mlp = nn.Linear(width, width)


def by_dimensions():
    model = Block(64)
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW([{"params": decayed}, {"params": others, "weight_decay": 0.0}], weight_decay=0.1)


def by_name(model):
    no_decay = ("bias", "norm.weight")
    return [p for n, p in model.named_parameters() if not any(nd in n for nd in no_decay)]


def without_decay():
    model = Block(64)
    return torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
