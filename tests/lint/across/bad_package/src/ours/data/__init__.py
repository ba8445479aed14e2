from .loaders import training_loader

__all__ = ["training_loader"]
