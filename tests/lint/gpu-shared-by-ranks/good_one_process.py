import torch


def main(model):
    torch.cuda.set_device(0)
    return torch.nn.DataParallel(model.cuda(), device_ids=[0, 1])
