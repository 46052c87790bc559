"""The chain in compiled C on the CPU: the kernel (sweep.c and its headers), how it is built and how it is called."""
