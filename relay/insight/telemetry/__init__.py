"""What a run writes down about itself, and what is read from it. No run depends on it."""
