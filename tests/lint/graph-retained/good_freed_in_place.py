def train(model, loader, optimizer):
    kept, parts = [], []
    for batch in loader:
        output = model(batch)
        loss = output["loss"]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.detach_()
        kept.append(loss)
        output["loss"] = output["loss"].item()
        parts.append(output)
    return kept, parts
