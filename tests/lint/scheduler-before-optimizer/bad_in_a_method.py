import torch


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters())
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 10)

    def training_step(self, batch):
        self.optimizer.zero_grad()
        self.model(batch).mean().backward()
        self.scheduler.step()  # expect: scheduler-before-optimizer
        self.optimizer.step()
