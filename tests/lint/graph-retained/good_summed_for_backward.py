def train(model, loader, optimizer):
    for batch in loader:
        optimizer.zero_grad()
        total = 0
        for x in batch:
            loss = model(x)
            total = total + loss
        total.backward()
        optimizer.step()


def whole(model, parts, optimizer):
    total = 0
    for x in parts:
        loss = model(x)
        total += loss
    loss = total / len(parts)
    loss.backward()
    optimizer.step()
