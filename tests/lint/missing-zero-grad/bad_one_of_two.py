import torch


def train(generator, critic, loader):
    optimizer_g = torch.optim.Adam(generator.parameters())
    optimizer_d = torch.optim.Adam(critic.parameters())
    for x in loader:
        critic(generator(x).detach()).mean().backward()
        optimizer_d.step()  # expect: missing-zero-grad
        optimizer_g.zero_grad()
        (-critic(generator(x)).mean()).backward()
        optimizer_g.step()
