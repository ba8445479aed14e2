import torch


def train(model, loader, optimizer, epochs, resume):
    if resume:
        model.load_state_dict(torch.load(resume))
    final = "final.pt"
    for epoch in range(epochs):
        for x in loader:
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
        path = f"epoch-{epoch}.pt"
        torch.save(model.state_dict(), path)
        torch.load(path)
    torch.save(model.state_dict(), final)
    return torch.load(final)
