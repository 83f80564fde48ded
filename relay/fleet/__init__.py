"""Many runs: phases claimed, worked on and landed, side by side on one machine or on many."""
