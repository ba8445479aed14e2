"""What trains is in another file; by its name it does."""

from engine import batch_backward, batch_forward, update_parameters


class Executor:
    def train(self, model, optimizer, train_loader, cv_loader):
        model.train()
        for step, batch in enumerate(train_loader):
            loss = batch_forward(model, batch)
            batch_backward(model, loss)
            update_parameters(model, optimizer)
            if step % 1000 == 0:
                self.validate(model, cv_loader)  # expect: eval-mode-wrong

    def validate(self, model, loader):
        model.eval()
        return [model(batch) for batch in loader]
