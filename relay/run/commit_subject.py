"""How the subject of a commit is worded, where the user's hooks may want a form."""

from relay.config import Settings
from relay.words import shorten

SUBJECT_CHARS = 72
"""Longest subject taken from a session. Source: git's own convention, a log stays below 80 columns."""
_USUAL = "chore: {subject}"
"""Conventional Commits, the form that most hooks of this kind ask for. Source: conventionalcommits.org, 1.0.0."""


def render_subject(words: str, settings: Settings) -> str:
    """Return a subject of relay's own in the form that the settings give it."""
    return _fill(settings.commit_subject, words)


def list_other_subjects(words: str, settings: Settings) -> tuple[str, ...]:
    """Return what is tried, in this order, where a hook refuses the words as they are."""
    forms = [settings.commit_subject]
    if settings.origins.get("commit_subject", "default") == "default":
        forms.append(_USUAL)
    # Such hooks want no capital behind the colon either.
    lowered = words[:1].lower() + words[1:] if words[1:2].islower() else words
    return tuple(dict.fromkeys(_fill(form, text) for text in (words, lowered) for form in forms))


def _fill(form: str, words: str) -> str:
    return shorten(form.replace("{subject}", words), SUBJECT_CHARS)
