import torch


class Translator(torch.nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder.requires_grad_(False)
        self.encoder.eval()  # expect: eval-mode-wrong
        self.head = torch.nn.Linear(512, 10)

    def forward(self, x):
        return self.head(self.encoder(x))
