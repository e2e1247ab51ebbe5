"""HTTP servers that keep strict books of what they admit, as `tests/servers/strict_server.py` runs them."""
