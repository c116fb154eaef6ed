"""The manager against plain round robin, simulated in virtual time."""
