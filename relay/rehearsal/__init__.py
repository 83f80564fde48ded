"""A scripted Messages API server on loopback, and three other APIs by way of it: real HTTP, a written-down model.

It never pretends to be a model's judgement: every response carries ``relay-rehearsal: 1`` and every model's
display name ends in "(rehearsed)". Nothing above it is faked: SDK, sockets, git, sandbox and gates are real.

    script.py       what is played: YAML a person can write, the format's documentation
    conditions.py   YAML nodes with their line numbers, and conditions on a request
    turns.py        a script as values, with the faults and the endpoints' dialects that it may name
    catalog.py      the models it knows, with their limits
    prompt.py       a request as counted, hashed blocks; the prompt cache; signed thinking blocks
    checks.py       requests and message histories that the API refuses
    wire.py         the API's error shape
    stage.py        the turn that answers a request, and the server's memory between requests
    answer.py       a turn as a message with usage, and as a stream of events
    delivery.py     bytes on the connection, and the faults that happen there
    other_apis.py   Responses, Chat Completions and Gemini, and the choice of the API by a request's path
    exchange.py     one request: routes, checks, performance
    transport.py    uvicorn, with the connection in reach
    server.py       the ASGI callable and its life, the entry point; and a server that plays a recorded tape
    demo.py         the example project, from a plan to three commits
"""
