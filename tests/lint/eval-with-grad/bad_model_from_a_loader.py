import torch


def load(path):
    net = torch.load(path, map_location="cpu", weights_only=False)
    net.eval()
    return net


def scores(batch, network):
    return network(batch).softmax(-1)


def main(path, batches):
    model = load(path)
    found = []
    for batch in batches:  # expect: eval-with-grad
        found.append(scores(batch, model))
    return found
