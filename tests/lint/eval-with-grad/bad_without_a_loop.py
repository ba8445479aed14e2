import torch


def load(path):
    model = torch.load(path)
    model.eval()
    return model


def train(model, optimizer, graph, target):
    model.train()
    loss = torch.nn.functional.cross_entropy(model(graph), target)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def score(model, graph, target):
    model.eval()
    out = model(graph)  # expect: eval-with-grad
    return (out.argmax(1) == target).float().mean().item()


@torch.no_grad()
def score_without_graph(model, graph, target):
    model.eval()
    return (model(graph).argmax(1) == target).float().mean().item()
