"""What has to hold and what is given before any session: the one place where collaborators are made."""
