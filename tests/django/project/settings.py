"""A Django project for tests. What differs between them is in the environment, so that worker processes see it too."""

import json
import os
from pathlib import Path

HERE = Path(__file__).parent
SECRET_KEY = "for tests only"
DEBUG = False
ALLOWED_HOSTS = ["*"]
USE_TZ = True
ROOT_URLCONF = "tests.django.project.urls"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "accoda.django",
    "tests.django.project.shop",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LOGGING_CONFIG = None

DATABASES = {
    "default": json.loads(os.environ.get("DJANGO_DATABASE", "null"))
    or {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:", "OPTIONS": {"timeout": 30}}
}
TASKS = json.loads(os.environ.get("DJANGO_TASKS", "null")) or {
    "default": {"BACKEND": "accoda.django.AccodaBackend", "OPTIONS": {"url": "memory://"}}
}
