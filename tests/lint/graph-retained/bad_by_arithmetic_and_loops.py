def in_a_dict(model, loader, optimizer, criterion):
    stats = {"loss": 0.0}
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        stats["loss"] += loss * len(x)  # expect: graph-retained
    return stats


def behind_micro_batches(model, batches, optimizer):
    history = []
    for batch in batches:
        for micro in batch:
            loss = model(micro).mean() / 4
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        history.append(loss)  # expect: graph-retained
    return history


def with_a_log(model, loader, optimizer, criterion):
    logs = []
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        log = {"loss": loss, "size": len(x)}
        logs.append(log)  # expect: graph-retained
    return logs
