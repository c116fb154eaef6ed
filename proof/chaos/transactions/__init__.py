"""Callers are killed between a write and its commit, relays in their step: `python -m proof.chaos.transactions`.

A job may exist if and only if the order that was written in the same transaction does, and only once.
"""
