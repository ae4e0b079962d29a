"""A Llama-shaped model of some megabytes that learns nano's small talk, to test servers of such checkpoints.

``train`` creates its Hugging Face folder in a minute or two on a CPU; ``write_gguf`` converts that for llama.cpp. The
results are not committed.
"""
