"""Before a session: what a killed run, a power loss or a busy person left is kept, put back, committed or closed."""
