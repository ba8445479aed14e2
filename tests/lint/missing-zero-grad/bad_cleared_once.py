class Recipe(Base):
    def train_step(self, batch):
        loss = self.forward(batch)
        loss.backward()
        self.optimizers.step()

    def train(self, loader):
        self.optimizers.zero_grad()
        while self.step < self.steps:
            self.train_step(next(loader))  # expect: missing-zero-grad
            self.step += 1
