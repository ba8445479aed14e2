"""The loss is divided under another name, and in a method that goes backward."""


class Trainer:
    def fit(self, loader):
        for step, batch in enumerate(loader):
            raw_loss = self.model(batch)
            scaled_loss = raw_loss / self.accum_steps
            total = scaled_loss + 0.0
            total.backward()
            if (step + 1) % self.accum_steps == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()

    def fit_by_method(self, loader):
        for step, batch in enumerate(loader):
            self.go_backward(self.model(batch))
            if (step + 1) % self.accum_steps == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()

    def go_backward(self, loss):
        loss = loss / self.accum_steps
        loss.backward()
