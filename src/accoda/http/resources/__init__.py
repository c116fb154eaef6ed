"""A file for each kind of thing that the service serves, each with its table `OPERATIONS`."""
