"""The session that writes a plan, and the judgement of its submissions."""
