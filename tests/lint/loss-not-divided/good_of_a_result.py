import torch


def of_a_result(task, loader, accum_steps):
    optimizer = torch.optim.SGD(task.parameters(), lr=0.1)
    so_far = 0
    for x in loader:
        result = task.train_step(x)
        result.loss /= accum_steps
        result.loss.backward()
        so_far += 1
        if so_far == accum_steps:
            optimizer.step()
            optimizer.zero_grad()
            so_far = 0


def by_a_denominator(model, batches, optimizer, accumulation_steps, masked_mean, counts):
    for i, batch in enumerate(batches):
        loss_denominator = counts[i // accumulation_steps]
        loss = masked_mean(model(batch), batch.mask, loss_denominator)
        loss.backward()
        if (i + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
