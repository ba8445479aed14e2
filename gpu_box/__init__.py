"""Simulated GPUs: the CUDA build of torch on libraries that replace those of NVIDIA (README.md)."""
