import torch


def optimizer_of(model, rate):
    groups = []
    for i in range(24):
        layer = [p for n, p in model.named_parameters() if n.startswith(f"blocks.{i}")]  # expect: param-in-two-groups
        groups.append({"params": layer, "lr": rate * 0.9**i})
    return torch.optim.AdamW(groups)
