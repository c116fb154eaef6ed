"""What people do with jobs: the command line, the HTTP API and the dashboard call this, and never a storage directly.

    jobs · queues · dead · replays · bulk · workers · schedules · webhooks · budgets · demands · fetches · overview

Every function takes the app first (its store, its handlers, its budgets) and gives records for people: names in
camelCase on the wire, moments as RFC 3339 text, secrets hidden. Errors are `AccodaError`s that name the wire's field.
"""
