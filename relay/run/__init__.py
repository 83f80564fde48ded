"""One phase, from where it goes on to its commit: the loop, a leg, the commit step, the plan's own commit, rewind."""
