import torch
from torch import nn

DECAY = 0.1


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ln = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.ln(x))))


def main(device):
    model = Block(512).to(device)
    return model, torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=DECAY)  # expect: decayed-norms
