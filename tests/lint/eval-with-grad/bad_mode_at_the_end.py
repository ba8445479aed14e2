import torch


class Node:
    def start(self, path):
        self.net = build(path)
        self.net = self.net.to("cuda").eval()

    def answer(self, points):
        out = self.net(points)[0]  # expect: eval-with-grad
        return select(out, 0.45)


def speak(path, text):
    model = torch.load(path).eval().cuda()
    return save(model.incremental_forward(text, quantize=True))  # expect: eval-with-grad
