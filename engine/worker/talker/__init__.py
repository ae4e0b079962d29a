"""Code that families share whose talker writes codec frames: one text token goes into each, and its codes come out.

``net`` computes (``rvq_net`` where a frame has several codes), ``speech`` is the state of one answer, ``stage`` and
``code2wav`` are the bases of the two stages, ``pending`` is how these queue and order their requests.
What stands before the text (the user's turns, a voice) is the family's; where that is in, all of them speak alike.
"""
