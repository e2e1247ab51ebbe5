"""Starts real Redis servers for the tests and leaves nothing behind."""
