import torch


def train(model, loader, accum_steps, folder):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    so_far = 0
    for x in loader:
        so_far += 1
        loss = model(x)
        loss = loss / so_far
        loss.backward()  # expect: loss-not-divided
        if so_far >= accum_steps:
            optimizer.step()
            optimizer.zero_grad()
            so_far = 0


def of_a_result(task, loader, accum_steps, folder):
    optimizer = torch.optim.SGD(task.parameters(), lr=0.1)

    def save(name):
        torch.save(optimizer.state_dict(), folder / "optimizer.pt")

    so_far = 0
    for x in loader:
        result = task.train_step(x)
        result.loss.backward()  # expect: loss-not-divided
        so_far += 1
        if so_far == accum_steps:
            optimizer.step()
            optimizer.zero_grad()
            so_far = 0
            save("last")
