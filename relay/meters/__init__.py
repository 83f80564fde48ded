"""How full a context is, what tokens cost, what has been spent."""
