"""The dashboard that `accoda serve` shows at `/`: pages made on the server, live by server-sent events.

| file         | what it does                                                                       |
| ------------ | ---------------------------------------------------------------------------------- |
| dashboard.py | the ASGI application: from a path to a page, an action, a file or a stream          |
| routes.py    | the tables of pages and actions; each module of `pages/` brings its own            |
| calls.py     | what a page and an action are given, and what they give back                       |
| render.py    | Jinja2, and the words of `words.py` as its filters                                 |
| words.py     | numbers, lengths and moments for people; pure                                      |
| charts.py    | sparklines; pure                                                                   |
| past.py      | what was recorded, as charts and in a few numbers; pure                            |
| health.py    | how a queue is, in a word and a reason; pure                                       |
| answers.py   | the headers of every answer, and the sentence that goes along to the next page     |
| forms.py     | what a form says, and whether it is a form of ours                                 |
| login.py     | tokens as cookies                                                                  |
| live.py      | one rendering for all who watch the same page                                      |
| files.py     | the files of `static/`, by a name that changes with their content                  |

It calls `accoda.admin` and never a storage.
"""
