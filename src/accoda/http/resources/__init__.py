"""A file for each kind of thing that the service serves."""
