"""Notifications for a person who is not watching the run; sending them never holds the run up."""
