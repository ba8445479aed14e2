import torch


class Updater:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(self, scaler=None):
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)  # expect: clip-before-unscale
        if scaler is not None:
            scaler.step(self.optimizer)
            scaler.update()
        else:
            self.optimizer.step()


class Engine:
    def __init__(self, model, amp):
        self.model = model
        self.scaler = torch.cuda.amp.GradScaler() if amp else None
        self.updater = Updater(model)

    def epoch(self, loader):
        for batch in loader:
            self.updater.optimizer.zero_grad()
            loss = self.model(batch).mean()
            if self.scaler is not None:
                self.scaler.scale(loss).backward()
            else:
                loss.backward()
            self.updater.step(scaler=self.scaler)
