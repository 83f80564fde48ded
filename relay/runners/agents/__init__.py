"""Coding agents that people already have, as runners: their CLIs under relay's gates.

Control and truth come by two ways. The Agent Client Protocol starts, prompts and stops an agent. What was spent,
whether the endpoint failed and where a tool has ended is read by a gateway that stands between the agent and its
endpoint. The agent runs in relay's sandbox as a whole: no network but the gateway, no key, a home of its own.

    wire.py         JSON-RPC lines over a child
    acp.py          what relay says and understands of the protocol
    dialects.py     requests of an endpoint as they pass: whose, how large
    permits.py      what they may have the endpoint do
    tally.py        its answers as they pass: usage, stop reason, faults
    http_peer.py    one connection of an agent, as an HTTP server has it
    gateway.py      what comes over them: forwards, holds, reads
    toolserver.py   relay's own tools for the agent: MCP on a Unix socket
    profile.py      what there is to know of an agent
    profiles.py     that of each agent, as data
    adaptation.py   what a user's settings make of it
    home.py         where it is found, and the home directory that it is given
    account.py      what a session has used: the gauge, the caps, what failed
    activity.py     what an agent does, as events
    session.py      one session: the order of it all
    boundary.py     what takes place between its turns
    tunnel.py       a session of an agent that asks its vendor itself
    runner.py       what is put up around a session
    kinds.py        the kinds of runner that this makes
"""
