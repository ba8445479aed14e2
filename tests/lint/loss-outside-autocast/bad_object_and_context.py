from contextlib import nullcontext

import torch
from torch import nn


class Trainer:
    def __init__(self, model, amp):
        self.model = model
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.scaler = torch.cuda.amp.GradScaler()
        self.context = torch.cuda.amp.autocast() if amp else nullcontext()

    def step(self, tokens, targets):
        self.optimizer.zero_grad()
        with self.context:
            output, _ = self.model(tokens)
        loss = self.criterion(output.view(-1, output.size(-1)), targets)  # expect: loss-outside-autocast
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def run(self, loader):
        for tokens, targets in loader:
            self.step(tokens.cuda(), targets.cuda())
