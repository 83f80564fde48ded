"""Coding agents that people already have, as runners: their CLIs under relay's gates.

Control and truth come by two ways. The Agent Client Protocol starts, prompts and stops an agent. What was spent,
whether the endpoint failed and where a tool has ended is read by a gateway that stands between the agent and its
endpoint. The agent runs in relay's sandbox as a whole: no network but the gateway, no key, a home of its own.

    wire.py         JSON-RPC lines over a child
    acp.py          what relay says and understands of the protocol
    dialects.py     requests and answers of an endpoint as they pass: usage, stop reason, faults
    gateway.py      HTTP on a Unix socket: forwards, holds, reads
    toolserver.py   relay's own tools for the agent: MCP on a Unix socket
    profiles.py     how each agent is started, as data
    home.py         where it is found, and the home directory that it is given
    account.py      what a session has used: the gauge, the caps, what failed
    doings.py       what an agent does, as events
    parts.py        what a session is made of
    session.py      one session: the order of it all
    runner.py       the kinds of runner that this makes
"""
