"""Coding agents that people already have, as runners: their CLIs under relay's gates.

Control and truth come by two ways. The Agent Client Protocol starts, prompts and stops an agent. What was spent,
whether the endpoint failed and where a tool has ended is read by a gateway that stands between the agent and its
endpoint. The agent runs in relay's sandbox as a whole: no network but the gateway, no key, a home of its own.

    acp.py          the Agent Client Protocol, and an agent's actions as events
    dialects.py     requests to an endpoint: who asks, how much, what they may ask for
    tally.py        its answers: usage, stop reason, faults
    gateway.py      the HTTP server between agent and endpoint: forwards, holds, reads
    toolserver.py   relay's own tools for the agent: MCP on a Unix socket
    profiles.py     each agent that relay knows, as data
    home.py         finds the agent and makes the home directory that it gets
    account.py      what a session has used: the gauge, the caps, what failed
    session.py      one session: the order of its steps, and the checks between turns
    runner.py       opens and closes sessions, those of agents with a login too
    kinds.py        the kinds of runner that this room makes
"""
