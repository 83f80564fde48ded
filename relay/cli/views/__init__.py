"""Views of a run: live on a terminal, as lines, as JSON; and the lines of `relay status`."""
