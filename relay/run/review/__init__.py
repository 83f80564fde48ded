"""A second pair of eyes: fresh sessions that look at a change and write nothing; one finds, another one refutes."""
