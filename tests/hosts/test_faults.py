"""Machines that are cut off, slowed down, powered off and replaced: answers stay exact, no run ends, and one
leader acts under an epoch."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from host_faults import Cut, Fault, PowerOff, SlowLink, all_cuts, all_power_offs, all_slow_links, storm
from host_fleets import CLIENTS, KOPI, HostFleet
from host_scenes import play

from sampling import IS_FULL, sampled, seed

STORM_SEEDS = (5, 7) if IS_FULL else (5,)
STORM_ROWS = 20_000 if IS_FULL else 1200
ANALYSIS_SECONDS = 600


def answers_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("results_query_*")}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("storm_seed", STORM_SEEDS)
@pytest.mark.long
def test_every_machine_fails_once_and_all_answers_are_those_of_one_machine(
    fleet: HostFleet, storm_seed: int, four_folders: list[Path], tmp_path: Path
) -> None:
    out, alone = tmp_path / "answers", tmp_path / "alone"

    def analyze(folder: Path) -> dict[str, bytes]:
        """The answers of one process on one machine, made while the fleet waits."""
        words = ("nice", "-n", "10", KOPI, "analyze", str(folder), "--out", str(alone / folder.name))
        fleet.machine(CLIENTS).run(*words, seconds=ANALYSIS_SECONDS)
        return answers_in(alone / folder.name)

    with ThreadPoolExecutor(1) as thread:
        analyses = {folder: thread.submit(analyze, folder) for folder in dict.fromkeys(four_folders)}
        account = play(fleet, storm(storm_seed), four_folders, out, STORM_ROWS)
        fleet.note(str(account))
        assert account.violations == []
        expected = [analyses[folder].result() for folder in four_folders]
    assert [len(answers) for answers in expected] == [15] * 4
    assert [answers_in(out / str(number)) for number in range(4)] == expected


def check(fleet: HostFleet, fault: Fault, sales: Path, out: Path) -> None:
    account = play(fleet, [fault], [sales], out)
    fleet.note(str(account))
    assert account.violations == []


@pytest.mark.rare
@pytest.mark.parametrize("cut", sampled(all_cuts(), 1, seed()), ids=str)
def test_a_cut_ends_no_run_and_loses_no_row(fleet: HostFleet, cut: Cut, sales: Path, tmp_path: Path) -> None:
    check(fleet, cut, sales, tmp_path)


@pytest.mark.rare
@pytest.mark.parametrize("link", sampled(all_slow_links(), 1, seed()), ids=str)
def test_a_slow_link_ends_no_run_and_loses_no_row(
    fleet: HostFleet, link: SlowLink, sales: Path, tmp_path: Path
) -> None:
    check(fleet, link, sales, tmp_path)


@pytest.mark.rare
@pytest.mark.parametrize("loss", sampled(all_power_offs(), 1, seed()), ids=str)
def test_a_lost_machine_is_replaced_and_the_answers_are_exact(
    fleet: HostFleet, loss: PowerOff, sales: Path, tmp_path: Path
) -> None:
    check(fleet, loss, sales, tmp_path)
