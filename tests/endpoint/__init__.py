"""The tests' endpoint: `relay.rehearsal`'s player, with what the real API refuses and what goes wrong on a wire.

faults.py     faults, dialects of other endpoints, what models accept
script.py     scripts with these
prompt.py     a request as counted, hashed blocks; the prompt cache; signed thinking blocks
checks.py     requests and message histories that the API refuses
answer.py     a turn as the API performs it: signed, cut at its limits, spoilt
state.py      the memory between requests; the record of all of them
exchange.py   one request: credentials, checks, the answer, and the faults on its connection
server.py     the server
"""
