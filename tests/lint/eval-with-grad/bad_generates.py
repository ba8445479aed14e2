import torch


class LanguageModel(torch.nn.Module):
    def generate_text(self, length):
        hidden, token, text = self.start(), torch.zeros(1, 1).long(), []
        for _ in range(length):  # expect: eval-with-grad
            prediction, hidden = self.forward(token, hidden)
            token = prediction.argmax(-1)
            text.append(token.item())
        return text
