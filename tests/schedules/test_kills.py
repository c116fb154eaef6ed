"""Two real schedulers, killed again and again: each tick gets exactly one job."""

from pathlib import Path

from proof.chaos.schedules.run import Orders, run


async def test_every_tick_gets_one_job_while_schedulers_are_killed(tmp_path: Path) -> None:
    orders = Orders(ticks=40, every=0.2, lease=0.5, pause=0.4, doom=0.2, patience=60, seed=7)
    verdict = await run(f"sqlite:///{tmp_path}/jobs.db", orders, tmp_path / "errors")
    assert verdict.ok, f"{verdict}\n{(tmp_path / 'errors').read_text()[-2000:]}"
    assert verdict.kills + verdict.deaths > 5


async def test_a_scheduler_that_takes_two_steps_is_found_out(tmp_path: Path) -> None:
    orders = Orders(ticks=8, every=0.2, lease=0.3, pause=0.5, doom=1.2, patience=20, torn=True)
    for life in range(6):  # one dies between its two steps by chance, seldom where all ticks are late at once
        verdict = await run(f"sqlite:///{tmp_path}/jobs{life}.db", orders, tmp_path / "errors")
        if verdict.twice:
            break
    assert verdict.twice and not verdict.ok and "BROKEN" in str(verdict)
