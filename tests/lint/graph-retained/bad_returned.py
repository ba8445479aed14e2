def step(model, optimizer, batch):
    optimizer.zero_grad()
    loss = model(batch).mean()
    loss.backward()
    optimizer.step()
    return loss


def step_of_two(model, optimizer, batch):
    optimizer.zero_grad()
    loss = model(batch).mean()
    loss.backward()
    optimizer.step()
    return loss, len(batch)


def train(model, optimizer, loader):
    total, losses, counted = 0.0, [], 0
    for batch in loader:
        losses.append(step(model, optimizer, batch))  # expect: graph-retained
        loss, count = step_of_two(model, optimizer, batch)
        total += loss  # expect: graph-retained
        counted += count
    return total, losses, counted
