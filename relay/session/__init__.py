"""The values of a session: what goes in, what it used, what happened. No input, no output."""
