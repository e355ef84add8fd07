"""Which epoch of leadership was current when a decision was written, from the database itself.

A trigger, which runs when a transaction commits, records the state that a run got, and the epoch in the lease
of the leader at that time. The monitors' logs say under which epoch each of them decided.
"""

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from kopitiam.registry.engine import connect_engine
from kopitiam.supervision.actions import read_actions

if TYPE_CHECKING:
    from host_fleets import HostFleet

_STATES = {"opens barrier of": "final", "fails": "failed", "force-ends": "ended"}
_TRIGGER = """
CREATE TABLE test_decisions (run text, state text, epoch bigint);
CREATE FUNCTION test_decide() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO test_decisions SELECT NEW.run, NEW.state, epoch FROM leases WHERE name = 'leader';
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER test_decide AFTER UPDATE OF state ON runs DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION test_decide();
"""


class StaleDecision(NamedTuple):
    run: str
    state: str
    decided: int  # under this epoch
    current: int  # at the commit


def record_decisions(fleet: "HostFleet") -> None:
    """Record from now on."""
    engine = connect_engine(fleet.settings.registry.url, fleet.lan.folder)
    try:
        with engine.begin() as connection:
            connection.execute(text(_TRIGGER))
    finally:
        engine.dispose()


def stale_decisions(fleet: "HostFleet") -> list[StaleDecision]:
    """Decisions of leaders that were written when another epoch had begun."""
    decided = {
        (action.subject, _STATES[action.deed]): action.epoch
        for name in fleet.settings.nodes.monitors
        for action in read_actions(fleet.read_log(name).decode(errors="replace"))
        if action.deed in _STATES
    }
    engine = connect_engine(fleet.settings.registry.url, fleet.lan.folder)
    try:
        with engine.connect() as connection:
            rows = connection.execute(text("SELECT run, state, epoch FROM test_decisions")).all()
    finally:
        engine.dispose()
    return [
        StaleDecision(row.run, row.state, decided[row.run, row.state], row.epoch)
        for row in rows
        if decided.get((row.run, row.state), row.epoch) != row.epoch
    ]
