"""Faults of machines and of the network between them, on a fleet of six machines made of namespaces."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from growth import grow_and_shrink
from host_faults import Fault, all_cuts, all_power_offs, all_slow_links, sampled_faults, storm
from host_fleets import HostFleet, running
from host_scenes import CHUNK_ROWS, Account, play

from kopitiam.synthetic import Profile, generate
from tools.reliability.measurements import Figure, Measurement, at_least, at_most, none_of
from tools.reliability.scenes import Session

_SCALE = 0.0005  # 7,300 transactions
_STORM_SCALE, _STORM_ROWS = 0.05, 20_000
_STORM_SEEDS = (5, 7)
_SAMPLE = 6
_NOTICE_SECONDS, _WORK_SECONDS, _CALL_SECONDS = 30, 180, 60


def cuts(session: Session) -> Iterator[Measurement]:
    """Cuts machines off, one at a time or from one other, in both directions or one."""
    yield _one_by_one(session, "cuts", "machines cut off from each other", [*all_cuts()])


def slow_links(session: Session) -> Iterator[Measurement]:
    """Gives machines a slow and lossy link."""
    yield _one_by_one(session, "slow-links", "slow and lossy links of machines", [*all_slow_links()])


def lost_machines(session: Session) -> Iterator[Measurement]:
    """Powers machines off and replaces them by empty ones."""
    yield _one_by_one(
        session, "lost-machines", "machines powered off and replaced by empty ones", [*all_power_offs()]
    )


def storms(session: Session) -> Iterator[Measurement]:
    """Makes a fault of every machine, one after the other, while four clients upload."""
    folder = session.new_folder("storms")
    scale, rows = (_SCALE, CHUNK_ROWS) if session.is_sample else (_STORM_SCALE, _STORM_ROWS)
    profiles = (Profile.REAL, Profile.WILD, Profile.REAL, Profile.WILD)
    for number, profile in enumerate(profiles):
        generate(folder / "data" / str(number), scale, session.seed + number, profile=profile)
    folders, accounts = sorted((folder / "data").iterdir()), list[Account]()
    with running(HostFleet(folder / "fleet")) as fleet:
        seeds = _STORM_SEEDS[:1] if session.is_sample else _STORM_SEEDS
        for seed in seeds:
            accounts.append(play(fleet, storm(seed), folders, folder / f"answers-{seed}", rows))
            session.say(str(accounts[-1]))
    yield _measurement(
        session,
        "every machine cut off, slowed down or replaced once, four clients",
        f"{len(accounts)} times, {len(folders)} runs each at scale {scale:g}, two of the wild profile",
        accounts,
        [],
    )


def growth(session: Session) -> Iterator[Measurement]:
    """Adds a machine under load, and takes it away again."""
    folder = session.new_folder("growth")
    generate(folder / "data", _SCALE, session.seed)
    with running(HostFleet(folder / "fleet")) as fleet:
        outcome = grow_and_shrink(fleet, folder / "data")
    before, grown, after = outcome.rates
    yield Measurement(
        "a machine added and taken away under load",
        f"once, {outcome.runs} runs",
        session.seed,
        (
            none_of("runs wrong or wrongly ended", len(outcome.complaints)),
            at_least("tasks on the new machine", outcome.tasks, 1),
            Figure("rows/s before", before),
            Figure("with it", grown),
            Figure("without it again", after),
        ),
        notes=tuple(outcome.complaints),
    )


def _one_by_one(session: Session, name: str, title: str, faults: list[Fault]) -> Measurement:
    """Uploads a run during each fault. One after which the fleet does not work again is a complaint."""
    folder, accounts, broken = session.new_folder(name), list[Account](), list[str]()
    generate(folder / "data", _SCALE, session.seed)
    if session.is_sample:
        faults = sampled_faults(faults, session.seed, _SAMPLE)
    with running(HostFleet(folder / "fleet")) as fleet:
        for number, fault in enumerate(faults):
            try:
                accounts.append(_play(fleet, fault, folder / "data", folder / f"answers-{number}"))
            except AssertionError as error:
                broken.append(f"{fault}: {str(error).partition(chr(10))[0][:300]}")
                session.say(broken[-1])
                fleet.await_whole()
    return _measurement(session, title, f"{len(faults)} times, a run under way each time", accounts, broken)


def _play(fleet: HostFleet, fault: Fault, data: Path, out: Path) -> Account:
    fleet.await_whole()
    return play(fleet, [fault], [data], out)


def _measurement(
    session: Session, title: str, times: str, accounts: Sequence[Account], broken: Sequence[str]
) -> Measurement:
    outcomes = {fault: outcome for account in accounts for fault, outcome in account.outcomes.items()}
    every = list(outcomes.values())
    noticed = [outcome.noticed for outcome in every if outcome.noticed is not None]
    complaints = [text for outcome in every for text in outcome.complaints]
    return Measurement(
        title,
        times,
        session.seed,
        (
            at_most("to notice", max(noticed, default=0), _NOTICE_SECONDS, "s"),
            Figure("too short or slight to be noticed", len(every) - len(noticed)),
            at_most("to work again", max((one.works for one in every), default=0), _WORK_SECONDS, "s"),
            at_most("longest call", max((one.longest_call for one in every), default=0), _CALL_SECONDS, "s"),
            at_least("runs verified", sum(account.runs for account in accounts), 1),
            none_of("runs wrongly ended", sum(account.wrongly_ended for account in accounts)),
            none_of("rows lost", sum(account.rows_lost for account in accounts)),
            none_of("rows double", sum(account.rows_double for account in accounts)),
            none_of("decisions under a stale epoch", sum(one.stale_decisions for one in every)),
            at_most(
                "leaders acting at once under one epoch",
                max((one.leaders_at_once for one in every), default=0),
                1,
            ),
            none_of("other complaints", len(complaints) + len(broken)),
        ),
        notes=(*(f"{fault}: {outcome}" for fault, outcome in outcomes.items()), *complaints, *broken),
    )
