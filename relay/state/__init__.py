"""Where a plan stands, read from git alone."""
