import torch


def step(model, head, x, y):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        features = model(x)
        with torch.autocast("cuda", enabled=False):
            loss = torch.nn.functional.cross_entropy(head(features.float()), y)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            again = model(x)
    loss.backward()
    return again
