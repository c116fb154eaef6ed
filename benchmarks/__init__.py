"""Rates of every storage beside the bare engine doing the same work in the same run: `make bench`."""
