"""Code shared by talkers that turn one text token into one codec frame.

``net`` has the networks (``rvq_net`` for frames of several codes). ``talker_state`` is the state of one answer.
``stage`` and ``code2wav`` are the base classes of the two stages, and ``pending`` has their queueing and ordering
rules. A model family defines the prompt before the text (the user's turns, a voice); after it, all families work alike.
"""
