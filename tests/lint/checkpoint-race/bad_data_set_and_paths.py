import os
import pickle

import torch.distributed as dist
from torch.utils.data import Dataset

from project.files import PathManager


class Clips(Dataset):
    def __init__(self, files, cache_file):
        if not os.path.exists(cache_file):
            pickle.dump(files, open(cache_file, "wb"))  # expect: checkpoint-race


class Run:
    def __init__(self, rank, folder):
        self.rank = rank
        self.settings_file = os.path.join(folder, "settings.yaml")

    def write(self, text):
        with PathManager.open(self.settings_file, "w") as file:  # expect: checkpoint-race
            file.write(text)
