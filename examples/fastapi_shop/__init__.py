"""A shop with FastAPI: see README.md."""
