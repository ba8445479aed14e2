import torch


def train(generator, critic, loader):
    optimizer_g = torch.optim.Adam(generator.parameters())
    optimizer_d = torch.optim.Adam(critic.parameters())
    for x in loader:
        critic.zero_grad()
        critic(generator(x).detach()).mean().backward()
        optimizer_d.step()
        optimizer_g.zero_grad()
        (-critic(generator(x)).mean()).backward()
        optimizer_g.step()


def train_all(model, loader):
    optimizers = [torch.optim.Adam(p.parameters()) for p in model.children()]
    for x in loader:
        for opt in optimizers:
            opt.zero_grad()
        model(x).mean().backward()
        for optimizer in optimizers:
            optimizer.step()
