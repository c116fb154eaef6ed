"""The page about budgets is true."""

import re
from pathlib import Path
from typing import Any

from accoda import App
from accoda.budget import BudgetView
from accoda.budget.model import Account, Budget, Claim, Hold

PAGE = (Path(__file__).parents[2] / "docs" / "budgets.md").read_text()


async def test_the_example_runs() -> None:
    calls = []

    async def call_the_api(category: str) -> dict[str, Any]:
        calls.append(category)
        if category == "busy" and calls.count("busy") == 1:
            return {"status": 429, "retry_after": 30}
        return {"status": 200, "tokens_left": 13, "refill_in": 12.5, "tokens_used": 7}

    scope: dict[str, Any] = {"call_the_api": call_the_api}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(code, "budgets.md", "exec"), scope)
    app: App = scope["app"]
    async with app.testing():
        await app.enqueue("deals", "books")
        await app.run_until_idle()
        view = (await app.budget_views())["keepa"]
        assert (view.left, view.used_today, view.observed_left) == (13, 7, 13)
        await app.enqueue("deals", "busy")
        await app.run_until_idle()
        assert (await app.budget_views())["keepa"].refused_today == 1
    async with app.testing():
        assert (await scope["ask_now"]("toys"))["tokens_used"] == 7
        view = (await app.budget_views())["keepa"]
        assert (view.used_today, view.observed_left) == (5, 13)


def test_everything_that_can_be_seen_is_in_the_page() -> None:
    for field in (*BudgetView.__struct_fields__, *Hold.__struct_fields__, *Claim.__struct_fields__):
        assert f"`{field}`" in PAGE or f"`view.{field}`" in PAGE or field in ("name", "at"), field
    for field in Budget.__struct_fields__:
        assert f"`{field}`" in PAGE or field == "name", field
    for field in ("left", "step_at", "reset_at", "closed_until", "holds", "claims"):
        assert field in Account.__struct_fields__ and field in PAGE
