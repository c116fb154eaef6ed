"""Two schedulers killed by SIGKILL at random: `python -m proof.chaos.schedules`. Each tick has one job."""
