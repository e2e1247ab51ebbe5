"""HTTP servers that keep strict books of their admissions, as `tests/servers/strict_server.py` runs them."""
