"""What stands between the network and the service: tokens, names, origins, limits, rates. See docs/security.md.

| file        | what it decides                                                        |
| ----------- | ---------------------------------------------------------------------- |
| guard.py    | the ASGI wrapper: all of the below, in order                           |
| paths.py    | which paths are looked at                                              |
| hosts.py    | to which names the service answers (DNS rebinding)                     |
| origins.py  | from which pages requests may come (CSRF, CORS)                        |
| pages.py    | which paths are the dashboard's: where cookies count and forms are read |
| tokens.py   | tokens: made, listed, revoked, recognised                              |
| token_cache.py | the tokens as a running service knows them                          |
| identity.py | who a caller is, and what its scopes allow                             |
| rates.py    | how many requests each party may send                                  |
| answers.py  | the headers that every answer has                                       |
| bodies.py   | what is read of a body, and in which time                              |
| policy.py   | all of this as one record, and whether a service may start with it     |
| refusals.py | the words of every refusal                                             |
"""

from __future__ import annotations

from accoda.http.security.bodies import Limits
from accoda.http.security.guard import Guard
from accoda.http.security.identity import ANONYMOUS, LOCAL, SCOPES, Identity, check_scope
from accoda.http.security.policy import Security, check_start

__all__ = ["ANONYMOUS", "LOCAL", "SCOPES", "Guard", "Identity", "Limits", "Security", "check_scope", "check_start"]
