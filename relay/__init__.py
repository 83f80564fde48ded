"""relay runs a long build as a relay of fresh sessions: the plan file is the memory, git is the state."""

__version__ = "0.1.0"
