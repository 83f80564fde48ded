"""Who drives a session: `base` is the contract, each folder next to it is one way to fulfil it."""
