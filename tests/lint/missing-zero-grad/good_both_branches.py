import torch


def both(model, loader, amp):
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler()
    for x in loader:
        loss = model(x).mean()
        if not amp:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        else:
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()


def accumulated(model, loader, every):
    optimizer = torch.optim.AdamW(model.parameters())
    for number, x in enumerate(loader):
        loss = model(x).mean() / every
        if number % every == every - 1:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        else:
            loss.backward()


def by_turns(critic, generator, loader):
    first = torch.optim.Adam(critic.parameters())
    second = torch.optim.Adam(generator.parameters())
    for number, x in enumerate(loader):
        if number % 2:
            first.zero_grad()
            critic(x).mean().backward()
            first.step()
        else:
            second.zero_grad()
            generator(x).mean().backward()
            second.step()
