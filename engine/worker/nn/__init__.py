"""Torch building blocks shared by model families.

Terms:

- row: the vector of one position in a sequence.
- column: one time step of a convolution's signal [channels, columns].
- slot: the place of one request in a state tensor, such as the KV cache.
- piece: consecutive rows or columns of one request that one step processes.
"""
