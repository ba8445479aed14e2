import torch


def layer_of(name, layers):
    for i in range(layers):
        if f"encoder.layer.{i}" in name:  # expect: param-in-two-groups
            return i
    return layers


def optimizer_of(model, rate):
    groups = [
        {"params": [p], "lr": rate * 0.9 ** layer_of(name, model.config.num_hidden_layers)}
        for name, p in model.named_parameters()
    ]
    return torch.optim.AdamW(groups)
