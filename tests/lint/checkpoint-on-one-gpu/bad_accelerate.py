import torch
from accelerate import Accelerator


class Trainer:
    def __init__(self, model, optimizer):
        self.accelerator = Accelerator()
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)

    def load(self, path):
        if self.accelerator.is_main_process:
            print("loads", path)
        state = torch.load(path)  # expect: checkpoint-on-one-gpu
        self.accelerator.unwrap_model(self.model).load_state_dict(state["model"])
