import threading

import torch

_all_threads = threading.Barrier(2)


def barrier():
    print(torch.__version__)
    _all_threads.wait()
