"""The session that writes a plan, and how large a plan's phases are."""
