"""Triton kernels for GPUs, and the operations that use them."""
