from accelerate import Accelerator


class Trainer:
    def __init__(self, model, optimizer, store):
        self.accelerator = Accelerator()
        train_dataloader = store.loader()
        self.model, self.optimizer, self.train_dataloader = self.accelerator.prepare(model, optimizer, train_dataloader)
        self.total_steps = 3 * len(train_dataloader)  # expect: schedule-length-wrong
