import torch


def divided(model, optimizer, loader, accumulate_every):
    for _ in range(100):
        for _ in range(accumulate_every):
            loss = model(next(loader))
            (loss / accumulate_every).backward()
        optimizer.step()
        optimizer.zero_grad()


def told_the_number(model, optimizer, loader, accumulate_every):
    for _ in range(100):
        for _ in range(accumulate_every):
            loss = model(next(loader), accumulate_every)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def of_all_batches(model, optimizer, batches, features, accum_freq):
    for _ in range(100):
        for j in range(accum_freq):
            mine = model(batches[j])
            loss = torch.cat(features[:j] + [mine] + features[j + 1 :]).logsumexp(0).mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def of_several_models(models, optimizer, loader):
    for x in loader:
        for model in models:
            model(x).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
