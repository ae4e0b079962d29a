"""Kernels in Triton for what a GPU spends its decode steps on. Off unless a configuration asks for them.

``loading`` says what there is and whether this machine can have it; it imports no Triton. Each of the other files is
one kernel and what launches it; ``launched`` is all of them. None has run on a GPU yet: they are compared with plain
torch on a CPU, where Triton interprets them, and compiled ahead for two kinds of GPUs (`make kernels`). They know no
stage and no model.
"""
