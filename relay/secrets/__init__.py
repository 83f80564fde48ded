"""What looks like a secret, and where a change would disclose one."""
