"""HTTP clients for the remote servers that stages use: addresses, requests and errors.

The stages know the servers' APIs.
"""
