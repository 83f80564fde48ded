"""A scripted Messages API server on loopback, which speaks three other APIs too: real HTTP, a written-down model.

It never pretends to judge as a model does: every response carries ``relay-rehearsal: 1``, and every model's display
name ends in "(rehearsed)". Everything above the server is real: SDK, sockets, git, sandbox and gates.

    script.py       reads a script: YAML a person can write; its docstring documents the format
    turns.py        a script as values: turns, conditions, faults, dialects of other endpoints
    wire.py         the models that it knows; models and errors as the APIs write them
    prompt.py       a request as counted, hashed blocks; the prompt cache; signed thinking blocks
    checks.py       requests and message histories that the API refuses
    stage.py        which turn answers a request; the server's memory between requests
    answer.py       a turn as a message with usage, and as a stream of events
    other_apis.py   Responses, Chat Completions and Gemini; the request's path chooses the API
    exchange.py     one request: routes, checks, the answer; bytes on the connection, and the faults that happen there
    connection.py   HTTP on the standard library's server: a thread per connection
    server.py       the server from a script
    demo.py         the example project, from a plan to three commits
"""
