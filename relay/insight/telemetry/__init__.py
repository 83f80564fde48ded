"""The logs that a run writes about itself, and their readers. No run depends on them."""
