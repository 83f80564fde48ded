"""Verify commands: running them, reading their output, and the verdict."""
