"""Transports between clients and sessions: WebSockets, WebRTC and telephone calls."""
