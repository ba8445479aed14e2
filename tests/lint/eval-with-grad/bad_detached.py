import torch


class Index:
    def __init__(self, encoder):
        self.encoder = encoder

    def add(self, text):
        vector = self.encoder(text)  # expect: eval-with-grad
        self.vectors.append(vector[0].detach().cpu().numpy())
        return vector.detach()

    def add_all(self, texts):
        with torch.no_grad():
            return [self.encoder(text).cpu() for text in texts]
