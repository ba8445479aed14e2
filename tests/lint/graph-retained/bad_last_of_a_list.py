def optimize(tensors, loss_function, optimizer, steps):
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        losses.append(sum(loss_function(*tensors)))  # expect: graph-retained
        losses[-1].backward()
        optimizer.step()
    return losses
