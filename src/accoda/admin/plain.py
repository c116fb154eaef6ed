"""Stored bytes as values that JSON can carry: see `accoda.shown.plain`."""

from accoda.shown.plain import decoded, has_hidden_names, named, plain, unreadable

__all__ = ["decoded", "has_hidden_names", "named", "plain", "unreadable"]
