import torch


def divided(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, x in enumerate(loader):
        loss = model(x) / 4
        loss.backward()
        if (i + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()


def two_networks(critic, generator, loader):
    of_critic = torch.optim.SGD(critic.parameters(), lr=0.1)
    of_generator = torch.optim.SGD(generator.parameters(), lr=0.1)
    for i, x in enumerate(loader):
        of_critic.zero_grad()
        critic(x).mean().backward()
        of_critic.step()
        if i % 5 == 0:
            of_generator.zero_grad()
            critic(generator(x)).mean().backward()
            of_generator.step()
