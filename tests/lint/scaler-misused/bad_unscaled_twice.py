import torch


def train(unet, text_encoder, loader, optimizer, loss_fn):
    scaler = torch.amp.GradScaler("cpu")
    for x, y in loader:
        optimizer.zero_grad()
        scaler.scale(loss_fn(text_encoder(unet(x)), y)).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(unet.parameters(), 1.0)
        scaler.unscale_(optimizer)  # expect: scaler-misused
        torch.nn.utils.clip_grad_norm_(text_encoder.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


def train_models(models, loader, optimizer):
    scaler = torch.amp.GradScaler("cpu")
    for x in loader:
        optimizer.zero_grad()
        scaler.scale(sum(model(x).mean() for model in models)).backward()
        for model in models:
            scaler.unscale_(optimizer)  # expect: scaler-misused
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


class Trainer:
    def __init__(self, models, optimizer):
        self.models, self.optimizer = models, optimizer
        self.scaler = torch.amp.GradScaler("cpu")

    def clip(self, model):
        self.scaler.unscale_(self.optimizer)  # expect: scaler-misused
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    def step(self, loss):
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.clip(self.models[0])
        self.clip(self.models[1])
        self.scaler.step(self.optimizer)
        self.scaler.update()
