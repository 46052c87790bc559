"""The parts of benchmarks/gpu_chain.py."""
