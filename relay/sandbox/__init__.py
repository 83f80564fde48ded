"""How a command is run: kernel sandbox, limits, process tree.

Owns every process that a session or a gate asks for. It reads no plan, no configuration file and no git; what may
be written and read comes in as a `Policy`.
"""
