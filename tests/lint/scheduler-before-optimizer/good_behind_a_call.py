import torch
from engine import evaluate, train_one_epoch
from nets import build

model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
for epoch in range(90):
    train_one_epoch(model, optimizer, epoch)
    scheduler.step()
    evaluate(model)
