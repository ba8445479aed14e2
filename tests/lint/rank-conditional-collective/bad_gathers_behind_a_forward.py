import torch
from accelerate import Accelerator

accelerator = Accelerator()
model = accelerator.prepare(torch.nn.Linear(2, 2))


def evaluate(on, net, x):
    with torch.no_grad():
        predicted = net(x)
    return on.gather_for_metrics(predicted)  # expect: rank-conditional-collective


if accelerator.is_main_process:
    print(evaluate(accelerator, model, torch.ones(2, 2)))
