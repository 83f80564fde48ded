"""relay's own loop over the Messages API."""
