"""Coding agents that people already have, as runners: their command line programs under relay's gates.

relay controls an agent by the Agent Client Protocol: start, prompt, stop. What was spent, whether the endpoint failed
and where the agent's tools have ended is read by a gateway between the agent and its endpoint. The whole agent runs in
relay's sandbox: no network but the gateway, no key, a home directory of its own.

    agents.toml     every agent that relay knows
    profiles.py     a profile as a value; where the agent's program is, and the home directory it gets
    acp.py          the Agent Client Protocol; an agent's actions as events; relay's own tools for the agent (MCP)
    dialects.py     requests to an endpoint and its answers: who asks, what is allowed, what was used
    gateway.py      the HTTP server between agent and endpoint: holds, forwards and reads requests
    account.py      what a session has used: the gauge, the caps, what failed
    session.py      one session: the order of its steps, and the checks between turns
    runner.py       opens and closes sessions, also those of agents with the user's login
"""
