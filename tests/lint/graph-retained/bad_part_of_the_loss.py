def train(model, optimizer, loader):
    total_kl = 0.0
    for batch in loader:
        optimizer.zero_grad()
        ce_loss = model(batch).mean()
        kl_loss = model.kl(batch)
        loss = ce_loss + 0.1 * kl_loss
        loss.backward()
        optimizer.step()
        total_kl = kl_loss + total_kl  # expect: graph-retained
    return total_kl
