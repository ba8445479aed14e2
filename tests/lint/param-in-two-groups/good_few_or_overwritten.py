import torch


def optimizer_of(model, rate):
    few = [[p for n, p in model.named_parameters() if n.startswith(f"layer{i}")] for i in range(1, 5)]
    rates = {}
    for i in range(24):
        for name, _ in model.named_parameters():
            if f"blocks.{i}" in name:
                rates[name] = rate * 0.9**i
    groups = [{"params": [p], "lr": rates.get(n, rate)} for n, p in model.named_parameters()]
    return few, torch.optim.AdamW(groups)
