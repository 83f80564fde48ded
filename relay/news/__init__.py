"""News of a run for a person who is not there: what is worth a call, and calling without ever holding the run up."""
