"""How Accoda grows, from ten million jobs to a Cluster, and a model of what lies beyond: `make bench-scale`."""
