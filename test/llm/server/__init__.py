"""The server, its API and its chat page."""
