"""Who drives a session: `base` is the contract, a folder beside it is one way to keep it."""
