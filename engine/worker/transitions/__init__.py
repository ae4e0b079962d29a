"""Transitions: conversions of one stage's step-by-step output to the next stage's input. One file for each model
family.

A transition implements ``Transition``. The consuming stage runs it in its ``adapt``, by ``adapted``. Most are declared
by a struct of steps, whose annotations say how fields accumulate, and a pure function that makes the payload of all
steps (``FullPayload``). ``Windows`` cuts payloads for decoders that take pieces. These files contain only rules: no
networks and no weights.
"""
