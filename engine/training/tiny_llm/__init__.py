"""A Llama-shaped model of some megabytes that holds nano's small talk: for tests of what serves such checkpoints.

``train`` makes a Hugging Face folder of it in a minute or two on a CPU; ``write_gguf`` makes a file for llama.cpp of
that. What they make is committed nowhere.
"""
