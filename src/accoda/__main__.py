"""`python -m accoda` is `accoda`."""

from accoda.cli import main

main()
