import mxnet as mx
import torch


def evaluate(model, loader):
    return [mx.nd.softmax(model(torch.as_tensor(x).numpy())) for x in loader]
