"""Many machines at one plan: phases given out by a queue, worked on in clones, landed on the remote."""
