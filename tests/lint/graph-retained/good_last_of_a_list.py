def optimize(tensors, loss_function, optimizer, steps):
    kept = []
    for _ in range(steps):
        losses = []
        optimizer.zero_grad()
        for one in tensors:
            losses.append(loss_function(one))
        losses[-1].backward()
        optimizer.step()
        kept.append(losses[-1].item())
    return kept
