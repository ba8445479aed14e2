import torch
from project.models import Net, load


def main(path, images):
    net = Net().cuda()
    net.load_state_dict(torch.load(path))
    net.requires_grad_(False).eval()
    with torch.no_grad():
        return [net(image).argmax(1) for image in images]


def other(path, images):
    net = load(path)
    with torch.no_grad():
        return [net(image).argmax(1) for image in images]
