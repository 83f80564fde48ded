"""A scripted Messages API server on loopback, which speaks three other APIs too: real HTTP, a written-down model.

It never pretends to judge as a model does: every response carries ``relay-rehearsal: 1``, and every model's display
name ends in "(rehearsed)". Everything above the server is real: SDK, sockets, git, sandbox and gates. It plays whole
answers; what goes wrong on a wire is played by a subclass, the tests' endpoint (``tests/endpoint``).

    wire.py         the Messages API's forms: blocks and their tokens, models, errors
    script.py       a script: YAML a person can write; every key with its type and its meaning
    conditions.py   conditions of a script on a request
    stage.py        which turn answers a request; the server's memory between requests
    answer.py       a turn as a message with usage, and as a stream of events
    other_apis.py   Responses, Chat Completions and Gemini; the request's path chooses the API
    connection.py   HTTP on loopback: a thread per connection
    exchange.py     one request: routes, the turn, the answer
    server.py       the server from a script
    demo.py         the example project, from a plan to three commits
"""
