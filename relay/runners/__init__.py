"""Runners drive sessions: `base` is their contract, `registry` lists them, each folder is an implementation.

`account` books what their requests cost.
"""
