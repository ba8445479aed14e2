import torch
from transformers import BertModel


def main(config):
    model = BertModel(config)
    no_decay = ["bias", "LayerNorm.weight"]
    kept = [p for n, p in model.named_parameters() if any(word in n for word in no_decay)]
    decayed = [p for n, p in model.named_parameters() if not any(word in n for word in no_decay)]
    return torch.optim.AdamW([{"params": decayed}, {"params": kept, "weight_decay": 0.0}])
