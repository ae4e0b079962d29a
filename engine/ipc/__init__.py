"""Messages and connections between the server and its workers."""
