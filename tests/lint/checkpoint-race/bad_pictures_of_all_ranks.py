import os

import matplotlib.pyplot as plt
import torch.distributed as dist
from torchvision.utils import save_image


def sample(model, epoch, out, count):
    rank = dist.get_rank()
    images = model(count, rank)
    save_image(images, os.path.join(out, f"{epoch}.png"))  # expect: checkpoint-race
    figure, axes = plt.subplots()
    axes.hist(images.flatten())
    figure.savefig(os.path.join(out, f"histogram_{epoch}.png"))  # expect: checkpoint-race
    for number, image in enumerate(images):
        save_image(image, os.path.join(out, f"{number}.png"))  # expect: checkpoint-race
