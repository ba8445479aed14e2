import torch


def measure(model, x, dtype):
    with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16):
        half = model(x)
    with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
        brain = model(x)
        with torch.autocast("cuda", dtype=dtype):
            other = model(x)
    return half, brain, other
