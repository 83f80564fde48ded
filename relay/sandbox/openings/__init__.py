"""What leads out of a sandbox because the user opened it: a few hosts, ports of this machine, sockets.

Without any of it a command has a network of its own in which nothing is. What is opened here is held by relay, outside;
inside stands `inside.py`, which the command knows nothing of.
"""
