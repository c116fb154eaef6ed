"""What people are shown of a job: plain values for its bytes, nothing that is secret, a level for its rank."""
