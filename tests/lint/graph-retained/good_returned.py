def step(model, optimizer, batch):
    optimizer.zero_grad()
    loss = model(batch).mean()
    loss.backward()
    optimizer.step()
    loss = loss.item()
    return loss


def step_of_two(model, optimizer, batch):
    optimizer.zero_grad()
    loss = model(batch).mean()
    loss.backward()
    optimizer.step()
    return loss.detach(), len(batch)


def train(model, optimizer, loader):
    total, losses = 0.0, []
    for batch in loader:
        losses.append(step(model, optimizer, batch))
        loss, count = step_of_two(model, optimizer, batch)
        total += loss / count
    return total, losses


def train_with_parts(model, optimizer, loader):
    weights = 0.0
    for batch in loader:
        optimizer.zero_grad()
        ce_loss = model(batch).mean()
        loss = ce_loss + 0.1 * model.kl(batch)
        loss.backward()
        optimizer.step()
        weights += ce_loss.item()
    return weights
