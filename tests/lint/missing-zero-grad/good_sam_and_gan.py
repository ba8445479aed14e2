import torch


def sam(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in loader:
        model(x).backward()
        optimizer.step()
        optimizer.zero_grad()
        model(x).backward()
        optimizer.step()
        optimizer.zero_grad()


def gan(generator, critic, loader):
    opt_g = torch.optim.Adam(generator.parameters())
    opt_c = torch.optim.Adam(critic.parameters())
    for x in loader:
        opt_c.zero_grad()
        critic(generator(x).detach()).mean().backward()
        opt_c.step()
        opt_g.zero_grad()
        critic(generator(x)).mean().backward()
        opt_g.step()
