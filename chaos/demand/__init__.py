"""Crowds before a demand, in real processes: `python -m chaos.demand`. Nobody may be forgotten, and nobody served twice
by the fetch of another.

What happened is counted outside the store: every call of `fetch`, every delivery, every answer to somebody who joins or
leaves is a line in a file.
"""
