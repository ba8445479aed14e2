"""A GPT of another file."""

import torch
from torch import nn

from ours import GPT


def main(config):
    model = GPT(config, norm=nn.LayerNorm)
    no_decay = ["bias", "LayerNorm.weight"]  # expect: decayed-norms
    kept = [p for n, p in model.named_parameters() if any(word in n for word in no_decay)]
    decayed = [p for n, p in model.named_parameters() if not any(word in n for word in no_decay)]
    return torch.optim.AdamW([{"params": decayed}, {"params": kept, "weight_decay": 0.0}])
