"""Messages and links between the server and its workers."""
