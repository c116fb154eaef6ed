"""The apps of a Django project for the command line, by their alias: `accoda worker accoda.django.cli:default`.

`manage.py accoda` names it. Outside of that, DJANGO_SETTINGS_MODULE has to be set.
"""

import django
from django.apps import apps

if not apps.ready:  # the child of a supervisor, or a plain `accoda`
    django.setup()

from accoda.django.project import aliases, project_of

globals().update({alias: project_of(alias).with_handlers() for alias in aliases()})
