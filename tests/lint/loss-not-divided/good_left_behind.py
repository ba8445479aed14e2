def train(model, optimizer, loader, accumulation_steps):
    for step, batch in enumerate(loader):
        is_accumulating = (step + 1) % accumulation_steps != 0
        loss = model(batch)
        loss = loss / accumulation_steps
        loss.backward()
        if is_accumulating:
            continue
        optimizer.step()
        optimizer.zero_grad()
