"""The session that writes a plan, of a wish or of another agent's session, and the judgement of its submissions."""
