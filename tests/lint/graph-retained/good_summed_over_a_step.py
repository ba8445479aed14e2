import torch


def main(model, batches, accum_steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(100):
        optimizer.zero_grad()
        shown, parts = 0.0, []
        for _ in range(accum_steps):
            loss = model(next(batches)) / accum_steps
            loss.backward()
            shown = shown + loss
            parts.append(loss)
        optimizer.step()
        if step % 10 == 0:
            print(shown.item(), len(parts))
