"""A queue at work, to look at: `python -m accoda.demo`.

The handlers only pretend to work; every move of a job goes through a real storage, and every number shown was counted.

    jobs.py      what the jobs are, and the producer
    work.py      the worker: take, pretend, decide, settle
    deals.py     a crowd that wants deals of an API that counts every call
    service.py   the dashboard, the API and a worker for them
    pulse.py     heartbeats of the demo's own workers
    trouble.py   a worker that crashes, and the person who looks after dead jobs
    journal.py   what happened, as the parts above were told by the storage
    snapshot.py  one moment of it all, for the view
    view.py      from a snapshot to the screen
    account.py   the sum at the end, and whether it holds
    summary.py   how that is told
    stage.py     the loops, and how they end
"""
