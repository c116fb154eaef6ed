"""Two schedulers in real processes, killed by SIGKILL at random: `python -m chaos.schedules`. Each tick has one job."""
