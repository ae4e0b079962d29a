"""Transitions: what one stage gives, step by step, becomes what the next stage takes. One file a family.

A transition is a ``Transition``. The consumer's stage runs it in its ``adapt``, with ``adapted``. Most are declared: a
struct of steps says how its fields accumulate, and a pure function makes the payload of the whole (``Whole``); where a
decoder takes pieces, ``Windows`` cuts them. The families here have their rules only: no networks and no weights.
"""
