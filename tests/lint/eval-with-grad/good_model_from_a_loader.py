import torch


def load(path):
    net = torch.load(path, map_location="cpu", weights_only=False)
    net.eval()
    return net


@torch.no_grad()
def scores(batch, network):
    return network(batch).softmax(-1)


def main(path, batches):
    model = load(path)
    return [scores(batch, model) for batch in batches], [scores(b, model) for b in batches]
