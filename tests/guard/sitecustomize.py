"""Python runs this in every process that a test starts: they reach nothing but this machine either."""

import network

network.install()
