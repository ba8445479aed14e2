def train(model, optimizer, loader, accumulation_steps):
    for step, batch in enumerate(loader):
        is_accumulating = (step + 1) % accumulation_steps != 0
        loss = model(batch)
        loss.backward()  # expect: loss-not-divided
        print(sum([1.0, 2.0]) / 2)
        if is_accumulating:
            continue
        optimizer.step()
        optimizer.zero_grad()
