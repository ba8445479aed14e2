import torch


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    for x in loader:
        model(x)


def validate(model, loader):
    model.eval()
    with torch.inference_mode():
        for x in loader:
            model(x)


def inner(model, loader):
    model.eval()
    for x in loader:
        model(x)


def main(model, loader):
    with torch.no_grad():
        inner(model, loader)
