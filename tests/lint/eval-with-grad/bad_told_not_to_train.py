import torch


class Trainer:
    def __init__(self, model, optimizer):
        self.model = model
        self.optimizer = optimizer

    def run_epoch(self, data, train_mode=True):
        self.model.train(train_mode)
        total = 0.0
        for batch in data:
            loss = self.model(batch).mean()
            total += loss.item()
            if train_mode:
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
        return total

    def fit(self, train_data, val_data):
        for _ in range(10):
            self.run_epoch(train_data)
            self.run_epoch(val_data, train_mode=False)  # expect: eval-with-grad
        with torch.no_grad():
            return self.run_epoch(val_data, train_mode=False)
