import torch


class Trainer:
    def __init__(self, accelerator, net, optimizer, loader):
        self.accelerator = accelerator
        self.model, self.optimizer, self.loader = accelerator.prepare(net, optimizer, loader)

    def step(self, batch, number):
        self.accelerator.backward(self.model(batch).mean())
        self.optimizer.step()
        if self.accelerator.is_main_process and number % 100 == 0:
            with torch.inference_mode():
                print(self.model(batch).mean())  # expect: rank-conditional-collective


def finish(accelerator, model):
    if accelerator.is_main_process:
        model = accelerator.unwrap_model(model)
        model.save_pretrained("out")
        model = accelerator.prepare(model)  # expect: rank-conditional-collective
