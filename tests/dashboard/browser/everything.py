"""What is tried in the browser, for a storage that a class of tests names."""

from __future__ import annotations

import pytest
from alive import Alive, Keys
from browser_world import World
from every_page import EveryPage, EveryPageBriefly, Stored
from page_actions import PageActions

from accoda.dashboard.routes import actions, pages


class Whole:
    """Tests of a base class run before those of a class: so this one has to be the first of the bases."""

    storage: str

    def test_every_page_was_looked_at_and_every_action_done(self, world: World, request: pytest.FixtureRequest) -> None:
        ran = {
            item.name.partition("[")[0] for item in request.session.items if getattr(item, "cls", None) is request.cls
        }
        if {name for name in dir(request.cls) if name.startswith("test_")} - ran:
            pytest.skip("only some of the tests of this file are run")
        seen = {found.route.path for path in world.visited if (found := pages().find(path)) is not None}
        done = {action.route.path for path in world.driven if (action := actions().find(path)) is not None}
        assert {route.path for route in pages().routes} - seen == set()
        assert {route.path for route in actions().routes} - done == set()


class Everything(Whole, EveryPage, Stored, Alive, Keys, PageActions):
    """Pages and what is done on them."""


class WhatIsStored(Whole, EveryPageBriefly, Stored, Alive, PageActions):
    """Without what concerns a page alone, whatever its storage: how it looks, whom it suits, and its keys."""
