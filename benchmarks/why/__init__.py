"""How good `why` is at telling when a job will start."""
