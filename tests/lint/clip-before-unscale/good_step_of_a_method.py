import torch


class Updater:
    def __init__(self, model, optimizer):
        self.model = model
        self.optimizer = optimizer

    def step(self, *, scaler: torch.amp.GradScaler | None = None):
        if scaler is not None:
            scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        if scaler is not None:
            scaler.step(self.optimizer)
            scaler.update()
        else:
            self.optimizer.step()
