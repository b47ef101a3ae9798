"""Triton kernels for GPUs, and the layers that use them."""
