from project.metrics import AverageMeter


class Trainer:
    def __init__(self):
        self.losses = AverageMeter()

    def step(self, batch):
        loss = self.criterion(self.model(batch[0]), batch[1])
        self.losses.update(loss, len(batch[0]))  # expect: graph-retained
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
