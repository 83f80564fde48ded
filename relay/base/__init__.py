"""The base of all rooms: errors, words, values, safe files, and the search for secrets. It imports no other room.

errors, hints, interrupts and words serve people; values makes value classes. walk and tree handle files: no link leads
a path astray and no crash leaves a file half written. secrecy knows the files that hold credentials,
redaction finds secrets in text. documents reads YAML and TOML with limits. program runs one of the user's with limits,
jsonrpc talks to one, http_peer serves HTTP on a connection, sse reads a stream of events.
"""
