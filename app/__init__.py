"""The server and the command line: sockets, sessions and HTTP. Imports only the engine's public names."""
