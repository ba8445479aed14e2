import torch


class Updater:
    def __init__(self, model, optimizer):
        self.model = model
        self.optimizer = optimizer

    def step(self, *, scaler: torch.amp.GradScaler | None = None):
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)  # expect: clip-before-unscale
        if scaler is not None:
            scaler.step(self.optimizer)
            scaler.update()
        else:
            self.optimizer.step()
