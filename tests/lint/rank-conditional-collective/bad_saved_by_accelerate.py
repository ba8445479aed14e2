from accelerate import Accelerator


def main(model):
    accelerator = Accelerator(log_with="wandb")
    model = accelerator.prepare(model)
    if accelerator.is_main_process:
        accelerator.save_state("state")  # expect: rank-conditional-collective


class Trainer:
    def __init__(self, accelerator):
        self.accelerator = accelerator

    def log(self, loss):
        if self.accelerator.is_main_process:
            print(self.accelerator.gather(loss).mean())  # expect: rank-conditional-collective
