import torch


class Trainer:
    def __init__(self, model, loader):
        self.model = model
        self.loader = loader
        self.optimizer = torch.optim.Adam(model.parameters())
        self.step = 0

    def run(self, steps):
        while self.step < steps:
            loss = self.model(next(self.loader))
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.step += 1
            if self.step % 1000 == 0:
                self.model.eval()  # expect: eval-mode-wrong
                with torch.no_grad():
                    print(self.model.sample(4))
