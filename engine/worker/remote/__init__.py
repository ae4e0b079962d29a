"""Servers that a stage asks over HTTP: where they are, how they are asked, and what goes wrong with them.

Knows no stage and no kind of server: the stage knows what to ask one for, and what its answers mean.
"""
