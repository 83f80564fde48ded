"""PLAN.md in and out: parsed to values, checked, edited line by line. Pure; reads no disk and no git."""
