import torch
from project.models import Net


def main(path, images):
    net = Net().cuda()
    net.load_state_dict(torch.load(path))
    with torch.no_grad():
        return [net(image).argmax(1) for image in images]  # expect: eval-mode-wrong
