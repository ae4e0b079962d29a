"""WebRTC calls: audio and video as RTP, and events on a data channel, for the same session as on other transports."""
