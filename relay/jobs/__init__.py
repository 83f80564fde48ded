"""Several phases side by side: each a run of its own in a work tree of its own, landed one after the other."""
