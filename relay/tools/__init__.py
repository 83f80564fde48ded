"""What a session can do: read, search, edit, run commands, claim items. Everything is confined to the repository."""
