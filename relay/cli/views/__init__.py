"""Views of a run: live on a terminal, as lines, as JSON, in a browser; and the lines of `relay status`."""
