"""WebRTC: a call's sound and pictures as RTP, its events on a data channel; the session in between is the same."""
