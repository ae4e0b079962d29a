"""Triton kernels for the most expensive operations on a GPU. Enabled by default on supported NVIDIA GPUs.

``nn.kernel_loading`` decides whether a device can use them, without importing Triton. Each file here has the kernels of
one operation and their launch code; ``launched`` collects them. Tests compare them with plain torch on a CPU, where
Triton interprets them. `make kernels` compiles them for two GPU types, and `make gpu` runs them.
"""
