"""What a job costs in a transaction, beside a row of one's own; and Django's tasks beside `django-tasks-db`."""
