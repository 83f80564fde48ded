"""The texts that a model is given, and where shipped files lie."""
