import torch


def main(model, loader):
    optimizer = torch.optim.LBFGS(model.parameters())
    for x in loader:

        def closure():
            optimizer.zero_grad()
            loss = model(x)
            loss.backward()
            return loss

        optimizer.step(closure)
