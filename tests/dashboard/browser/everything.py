"""What is tried in the browser, for a storage that a class of tests names."""

from __future__ import annotations

from alive import Alive, Keys
from covers import covered_by
from every_page import PAGES, EveryPage, EveryPageBriefly, Stored
from flow_pages import FlowGraph, FlowPages
from nothing_untrue import NothingUntrue
from page_actions import PageActions

from accoda.dashboard.routes import actions, pages


class Whole:
    """That the tests of a class are complete."""

    storage: str

    def test_every_page_is_looked_at_and_every_action_done(self) -> None:
        covered = {route for name in dir(self) if name.startswith("test_") for route in covered_by(getattr(self, name))}
        shown = map(pages().find, (path.partition("?")[0] for path in PAGES.values()))
        covered |= {found.route.path for found in shown if found is not None}
        assert covered == {route.path for route in (*pages().routes, *actions().routes)}


class Everything(Whole, EveryPage, Stored, Alive, Keys, NothingUntrue, PageActions, FlowPages, FlowGraph):
    """Pages and what is done on them."""


class WhatIsStored(Whole, EveryPageBriefly, Stored, Alive, PageActions, FlowPages):
    """Without what concerns a page alone, whatever its storage: how it looks, whom it suits, and its keys."""
