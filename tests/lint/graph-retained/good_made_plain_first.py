def train(model, loader, optimizer):
    losses = []
    for x in loader:
        optimizer.zero_grad()
        loss = model(x)
        loss.backward()
        optimizer.step()
        loss = loss.item()
        losses.append(loss)
