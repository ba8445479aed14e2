"""distdbg: launch distributed PyTorch jobs and explain what goes wrong with them."""

__version__ = "0.1.0"
