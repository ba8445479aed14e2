from project.metrics import AverageMeter


class Trainer:
    def __init__(self):
        self.losses = AverageMeter()

    def step(self, batch):
        loss = self.criterion(self.model(batch[0]), batch[1])
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.update(loss.item(), len(batch[0]))
        self.seen.add(loss)

    def other_step(self, batch):
        loss = self.criterion(self.model(batch[0]), batch[1])
        loss.backward()
        self.optimizer.step()
        loss = loss.detach()
        self.losses.update(loss, len(batch[0]))
