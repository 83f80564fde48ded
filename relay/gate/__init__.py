"""Verify commands: how they are run, what their output shows, and the verdict."""
