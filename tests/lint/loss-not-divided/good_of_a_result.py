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
