"""A shop with Flask: see README.md."""
