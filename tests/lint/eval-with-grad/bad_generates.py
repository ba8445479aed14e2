import torch


class LanguageModel(torch.nn.Module):
    def generate_text(self, length):
        hidden, token, text = self.start(), torch.zeros(1, 1).long(), []
        for _ in range(length):
            prediction, hidden = self.forward(token, hidden)  # expect: eval-with-grad
            token = prediction.argmax(-1)
            text.append(token.item())
        return text
