import unittest

import torch
import torch.distributed as dist


class SeedTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(16)

    def test_rank(self):
        self.assertFalse(dist.is_initialized() and dist.get_rank())
