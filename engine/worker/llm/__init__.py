"""Language models behind an OpenAI-compatible chat completions server: what is asked, and how the answer comes.

Knows no stage, no request and no tensor.
"""
