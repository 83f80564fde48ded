"""How a run is shown: live on a terminal, as lines, as JSON, in a browser; and in a few lines of `relay status`."""
