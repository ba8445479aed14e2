class Manager:
    def step(self, batch):
        loss = self.model(batch)
        part = loss / self.number
        part.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def run(self, loader):
        epoch_loss = 0
        for batch in loader:
            batch_loss = self.step(batch)
            epoch_loss += batch_loss  # expect: graph-retained
        return epoch_loss
