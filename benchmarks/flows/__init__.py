"""Jobs that depend on each other: fans with a join, the same under kills, and Accoda's flows at scale."""
