class Meter:
    def __init__(self):
        self.sum = 0.0
        self.n = 0

    def update(self, value):
        self.sum += value
        self.n += 1


def train(model, optimizer, loader):
    meter = Meter()
    for batch in loader:
        optimizer.zero_grad()
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
        meter.update(loss.item())
