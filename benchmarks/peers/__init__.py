"""Accoda beside other Python job queues: the same work, on the same server, in the same run."""
