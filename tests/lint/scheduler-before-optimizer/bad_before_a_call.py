import torch
from engine import train_one_epoch
from nets import build

model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
for epoch in range(90):
    scheduler.step()  # expect: scheduler-before-optimizer
    train_one_epoch(model, optimizer, epoch)
