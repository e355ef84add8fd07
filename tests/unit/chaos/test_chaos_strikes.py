"""Strikes against a fleet that only pretends, on a clock that only pretends: what is seen of the victims."""

import signal

import pytest

from kopitiam_chaos.plan import LEADER, Strike, StrikeLimits
from kopitiam_chaos.strikes import StrikeRunner, StruckNode

KINDS = {
    "gateway-1": "gateway",
    "monitor-1": "monitor",
    "monitor-2": "monitor",
    "rabbitmq": "service",
    "postgresql": "service",
}
NEVER = float("inf")


class PretendedFleet:
    """Every node that is hurt is noticed and replaced so many seconds later."""

    def __init__(self, noticed=2.0, replaced=5.0):
        self.time = 0.0
        self.noticed, self.replaced = noticed, replaced
        self.hurt_at = {}
        self.blows = []
        self.most_down = 0
        self.leader = "monitor-2"
        self.nodes = {}
        self.busy_from = 0.0

    @property
    def runs_under_way(self):
        return {"a run": "open"} if self.time >= self.busy_from else {}

    def now(self):
        return self.time

    def sleep(self, seconds):
        self.time += seconds

    def aim(self, name):
        return StruckNode(name, 1, self.time)

    def send(self, struck, number):
        self.blows.append((round(self.time, 1), struck.name, number))
        if number != signal.SIGCONT:
            self.hurt_at[struck.name] = self.time
        self.most_down = max(self.most_down, len(self.unhealthy(None)))

    def is_noticed(self, struck, nodes):
        return self.time - struck.at >= self.noticed

    def is_replaced(self, struck, nodes):
        return self.time - struck.at >= self.replaced

    def is_healthy(self, name, nodes):
        return self.time - self.hurt_at.get(name, -NEVER) >= self.replaced

    def unhealthy(self, nodes):
        return [name for name in self.hurt_at if not self.is_healthy(name, nodes)]


def runner_over(fleet, patience=30.0):
    return StrikeRunner(
        victims=fleet,
        observer=fleet,
        bounds=StrikeLimits(KINDS, revive_limit=5),
        patience_seconds=patience,
        settle_seconds=1.0,
        now=fleet.now,
        sleep=fleet.sleep,
    )


def test_victims_are_struck_after_their_pauses_and_their_times_are_taken():
    fleet = PretendedFleet()
    runner = runner_over(fleet)
    strikes = [Strike(1, "gateway-1", "kill", 3.0), Strike(2, LEADER, "kill", 1.5)]

    assert runner.run_strikes(strikes) is True

    assert fleet.blows == [(3.0, "gateway-1", signal.SIGKILL), (4.6, "monitor-2", signal.SIGKILL)]
    assert [each.was_leader for each in runner.records] == [False, True]
    for record in runner.records:
        assert record.noticed_seconds == pytest.approx(2.0, abs=0.2)
        assert record.revived_seconds == pytest.approx(5.0, abs=0.2)
        assert record.is_replaced


def test_nobody_is_struck_while_no_run_is_under_way():
    fleet = PretendedFleet()
    fleet.busy_from = 10.0
    runner = runner_over(fleet)

    assert runner.run_strikes([Strike(1, "gateway-1", "kill", 3.0)]) is True

    assert fleet.blows[0][0] >= 10.0
    assert runner.records[0].runs_under_way == {"a run": "open"}


def test_a_service_waits_until_the_other_one_is_back():
    fleet = PretendedFleet()
    runner = runner_over(fleet)
    strikes = [Strike(1, "rabbitmq", "kill", 0.0), Strike(2, "postgresql", "kill", 1.0)]

    assert runner.run_strikes(strikes) is True

    assert fleet.blows[1][0] >= 5.0
    assert fleet.most_down == 1


def test_one_that_does_not_come_back_ends_the_storm():
    fleet = PretendedFleet(noticed=NEVER, replaced=NEVER)
    runner = runner_over(fleet, patience=20.0)

    assert (
        runner.run_strikes([Strike(1, "gateway-1", "kill", 1.0), Strike(2, "monitor-1", "kill", 60.0)])
        is False
    )

    assert [blow[1] for blow in fleet.blows] == ["gateway-1"]
    assert runner.records[0].revived_seconds is None
    assert fleet.time < 30


def test_one_that_stands_still_for_a_short_while_comes_back_by_itself():
    fleet = PretendedFleet(noticed=NEVER, replaced=NEVER)
    fleet.is_healthy = lambda name, nodes: fleet.time - fleet.hurt_at.get(name, -NEVER) >= 4.0
    runner = runner_over(fleet)

    assert runner.run_strikes([Strike(1, "gateway-1", "freeze", 0.0, hold_seconds=4.0)]) is True

    assert fleet.blows == [(0.0, "gateway-1", signal.SIGSTOP), (4.0, "gateway-1", signal.SIGCONT)]
    record = runner.records[0]
    assert (record.noticed_seconds, record.is_replaced) == (None, False)
    assert record.revived_seconds == pytest.approx(5.0, abs=0.3), "it had a second to settle"


def test_one_that_was_replaced_while_it_stood_still_is_woken_all_the_same():
    fleet = PretendedFleet()
    runner = runner_over(fleet)

    assert runner.run_strikes([Strike(1, "monitor-1", "freeze", 0.0, hold_seconds=12.0)]) is True

    assert runner.records[0].revived_seconds == pytest.approx(5.0, abs=0.2)
    assert [blow[1:] for blow in fleet.blows[1:]] == [("monitor-1", signal.SIGCONT)]
    assert fleet.time >= 12.0


@pytest.mark.parametrize("sent", [0, 1], ids=["before it was frozen", "when it was frozen"])
def test_one_that_is_frozen_when_an_interrupt_comes_is_woken(sent):
    fleet = PretendedFleet()
    send = fleet.send

    def interrupted(struck, number):
        fleet.send = send
        if sent:
            send(struck, number)
        raise KeyboardInterrupt

    fleet.send = interrupted
    with pytest.raises(KeyboardInterrupt):
        runner_over(fleet).run_strikes([Strike(1, "gateway-1", "freeze", 0.0, hold_seconds=12.0)])

    assert fleet.blows[sent:] == [(0.0, "gateway-1", signal.SIGCONT)]


def test_who_hears_of_it_hears_of_every_blow_notice_and_return():
    fleet = PretendedFleet()
    heard = []
    runner = runner_over(fleet)
    runner.on_change = lambda each: heard.append((each.noticed_seconds is None, each.revived_seconds is None))
    runner.run_strikes([Strike(1, "gateway-1", "kill", 0.0)])
    assert heard == [(True, True), (False, True), (False, False)]
