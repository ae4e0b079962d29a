"""The HTTP routes: OpenAI's API, client secrets, calls and administration."""
