"""Counters over time: rings of slots for every queue and budget, of fixed size whatever the traffic, kept as documents.

A job of `accoda.history` comes back every 15 seconds: `recorder` reads the counters, `plan` says what to write, `ring`
is what is written. `reading` gives series with a fixed number of points; `sparks` is the last quarter of an hour of all
queues in one document.
"""
