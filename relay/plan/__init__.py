"""PLAN.md: parsed to values, checked, and edited line by line. Pure; reads no disk and no git."""
