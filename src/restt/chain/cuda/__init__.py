"""The chain in Triton kernels on the GPU."""
