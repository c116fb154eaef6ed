"""Web applications with an Accoda app in them, and clients of theirs."""

import pytest

pytest.importorskip("fastapi", reason="the web frameworks are for development")
