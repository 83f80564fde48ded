"""A scripted Messages API server on loopback, and three other APIs by way of it: real HTTP, a written-down model.

It never pretends to be a model's judgement: every response carries ``relay-rehearsal: 1`` and every model's
display name ends in "(rehearsed)". Nothing above it is faked: SDK, sockets, git, sandbox and gates are real.

    script.py       what is played: YAML a person can write, the format's documentation
    nodes.py        reading YAML with line numbers
    conditions.py   what a request must look like
    faults.py       what may go wrong, and when
    turns.py        a script as values
    catalog.py      the models it knows, with their limits
    prompt.py       a request as counted, hashed blocks
    cache.py        the prompt cache
    signing.py      thinking blocks bound to their conversation
    checks.py       what the API refuses
    dialects.py     what endpoints that are not its provider's do otherwise
    conversation.py the same for message histories
    wire.py         the API's error shape
    stage.py        which turn a request is answered with
    answer.py       a turn as a message with usage
    sse.py          a message as a stream of events
    delivery.py     bytes on the connection, and the faults that happen there
    other_apis.py   the same as Chat Completions and Gemini have it
    responses.py    and as the Responses API does
    routes.py       which of them a request is for
    state.py        what it knows between requests
    exchange.py     one request: routes, checks, performance
    transport.py    uvicorn, with the connection in reach
    server.py       the ASGI callable and its life: the entry point
    tape.py         another server: what an endpoint has answered once, byte for byte
    demo.py         the example project, from a plan to three commits
"""
