class Net:
    def infer(self, x):
        return self.module(x)

    def train_step(self, x, y):
        self.module.train()
        self.loss(self.infer(x), y).backward()

    def validation_step(self, x, y):
        self.module.eval()
        return self.loss(self.infer(x), y)  # expect: eval-with-grad
