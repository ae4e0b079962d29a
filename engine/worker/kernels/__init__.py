"""Kernels in Triton for what a GPU spends its steps on. NVIDIA's GPUs have them unless a configuration says otherwise.

``loading`` says what there is and whether this machine can have it; it imports no Triton. Each of the other files is
one kernel and what launches it; ``launched`` is all of them. They are compared with plain torch on a CPU, where Triton
interprets them, compiled ahead for two kinds of GPUs (`make kernels`), and run on a GPU (`make gpu`). They know no
stage and no model.
"""
