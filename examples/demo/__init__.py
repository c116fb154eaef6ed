"""A queue at work, to look at: `python -m examples.demo`, from the root of the repository.

The handlers only pretend to work; every job is in a real storage, and every number shown was counted.

    jobs.py        the jobs, and the producer
    work.py        the worker: take, pretend, decide, settle
    deals.py       many requests to an API that counts every call
    service.py     the dashboard, the API and a worker for them
    heartbeats.py  heartbeats of the demo's own workers
    failures.py    a worker that crashes, and dead jobs that are revived
    event_log.py   what happened, according to the storage's answers
    snapshot.py    one moment of it all, for the view
    view.py        from a snapshot to the screen
    totals.py      the totals at the end, and whether they agree
    summary.py     the text at the end
    run.py         the loops, and how they end
"""
