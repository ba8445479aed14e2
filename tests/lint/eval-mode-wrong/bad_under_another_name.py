import torch
from library import get_optimizer


def evaluate(model, data):
    with torch.no_grad():
        for x in data:
            model.eval()  # expect: eval-mode-wrong
            print(model(x))


def train(prior, data, held_out, epochs):
    optimizer = get_optimizer(prior.parameters())
    for _ in range(epochs):
        for x in data:
            optimizer.zero_grad()
            loss = prior(x)
            loss.backward()
            optimizer.step()
        evaluate(prior, held_out)
