"""Flows under test: a model that computes what a flow must be, and a driver that does random things to flows."""
