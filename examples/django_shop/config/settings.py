"""The settings of the shop: two SQLite files, or one PostgreSQL with SHOP_DATABASE=postgresql://user:password@host/name."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

BASE_DIR = Path(__file__).parents[1]
DATA = Path(os.environ.get("SHOP_DATA", BASE_DIR))

DEBUG = os.environ.get("SHOP_DEBUG", "1") == "1"
SECRET_KEY = os.environ.get("SHOP_SECRET", "only for development")
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "accoda.django",
    "shop",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
            ]
        },
    }
]
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "orders"
LOGOUT_REDIRECT_URL = "login"
EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
DEFAULT_FROM_EMAIL = "shop@example.com"


def postgres(url: str) -> dict[str, Any]:
    """The entry of DATABASES for a PostgreSQL."""
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.removeprefix("/"),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": parts.port or 5432,
    }


if "SHOP_DATABASE" in os.environ:
    # The jobs are beside the shop's own tables, so they are part of its transactions.
    DATABASES = {"default": postgres(os.environ["SHOP_DATABASE"])}
    JOBS = "django://default"
else:
    # The jobs are in a file of their own. Those of a transaction go through the outbox table in the shop's file.
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": DATA / "shop.db",
            "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode = WAL"},
        }
    }
    JOBS = f"sqlite:///{DATA}/jobs.db"

TASKS = {
    "default": {
        "BACKEND": "accoda.django.AccodaBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {
            "url": JOBS,
            "max_attempts": 3,
            "queues": {"mail": {"concurrency": 2}},
        },
    }
}
