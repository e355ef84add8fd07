"""The strike runner against a simulated fleet and clock: when it strikes, and what it records."""

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


class SimulatedFleet:
    """Each struck node is noticed `noticed` seconds and replaced `replaced` seconds later."""

    def __init__(self, noticed=2.0, replaced=5.0):
        self.time = 0.0
        self.noticed, self.replaced = noticed, replaced
        self.struck_at = {}
        self.signals = []
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
        self.signals.append((round(self.time, 1), struck.name, number))
        if number != signal.SIGCONT:
            self.struck_at[struck.name] = self.time
        self.most_down = max(self.most_down, len(self.unhealthy(None)))

    def is_noticed(self, struck, nodes):
        return self.time - struck.at >= self.noticed

    def is_replaced(self, struck, nodes):
        return self.time - struck.at >= self.replaced

    def is_healthy(self, name, nodes):
        return self.time - self.struck_at.get(name, -NEVER) >= self.replaced

    def unhealthy(self, nodes):
        return [name for name in self.struck_at if not self.is_healthy(name, nodes)]


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


def test_nodes_are_struck_after_their_pauses_and_recovery_times_are_recorded():
    fleet = SimulatedFleet()
    runner = runner_over(fleet)
    strikes = [Strike(1, "gateway-1", "kill", 3.0), Strike(2, LEADER, "kill", 1.5)]

    assert runner.run_strikes(strikes) is True

    assert fleet.signals == [(3.0, "gateway-1", signal.SIGKILL), (4.6, "monitor-2", signal.SIGKILL)]
    assert [each.was_leader for each in runner.records] == [False, True]
    for record in runner.records:
        assert record.noticed_seconds == pytest.approx(2.0, abs=0.2)
        assert record.revived_seconds == pytest.approx(5.0, abs=0.2)
        assert record.is_replaced


def test_no_node_is_struck_while_no_run_is_under_way():
    fleet = SimulatedFleet()
    fleet.busy_from = 10.0
    runner = runner_over(fleet)

    assert runner.run_strikes([Strike(1, "gateway-1", "kill", 3.0)]) is True

    assert fleet.signals[0][0] >= 10.0
    assert runner.records[0].runs_under_way == {"a run": "open"}


def test_a_service_is_not_struck_while_another_service_is_down():
    fleet = SimulatedFleet()
    runner = runner_over(fleet)
    strikes = [Strike(1, "rabbitmq", "kill", 0.0), Strike(2, "postgresql", "kill", 1.0)]

    assert runner.run_strikes(strikes) is True

    assert fleet.signals[1][0] >= 5.0
    assert fleet.most_down == 1


def test_a_node_that_does_not_recover_ends_the_strikes():
    fleet = SimulatedFleet(noticed=NEVER, replaced=NEVER)
    runner = runner_over(fleet, patience=20.0)

    assert (
        runner.run_strikes([Strike(1, "gateway-1", "kill", 1.0), Strike(2, "monitor-1", "kill", 60.0)])
        is False
    )

    assert [sent[1] for sent in fleet.signals] == ["gateway-1"]
    assert runner.records[0].revived_seconds is None
    assert fleet.time < 30


def test_a_node_frozen_for_a_short_time_recovers_by_itself():
    fleet = SimulatedFleet(noticed=NEVER, replaced=NEVER)
    fleet.is_healthy = lambda name, nodes: fleet.time - fleet.struck_at.get(name, -NEVER) >= 4.0
    runner = runner_over(fleet)

    assert runner.run_strikes([Strike(1, "gateway-1", "freeze", 0.0, hold_seconds=4.0)]) is True

    assert fleet.signals == [(0.0, "gateway-1", signal.SIGSTOP), (4.0, "gateway-1", signal.SIGCONT)]
    record = runner.records[0]
    assert (record.noticed_seconds, record.is_replaced) == (None, False)
    assert record.revived_seconds == pytest.approx(5.0, abs=0.3), "one second to settle is included"


def test_a_frozen_node_is_resumed_even_if_it_was_replaced_meanwhile():
    fleet = SimulatedFleet()
    runner = runner_over(fleet)

    assert runner.run_strikes([Strike(1, "monitor-1", "freeze", 0.0, hold_seconds=12.0)]) is True

    assert runner.records[0].revived_seconds == pytest.approx(5.0, abs=0.2)
    assert [sent[1:] for sent in fleet.signals[1:]] == [("monitor-1", signal.SIGCONT)]
    assert fleet.time >= 12.0


@pytest.mark.parametrize("sent", [0, 1], ids=["before the signal", "after the signal"])
def test_an_interrupt_resumes_a_frozen_node(sent):
    fleet = SimulatedFleet()
    send = fleet.send

    def interrupted(struck, number):
        fleet.send = send
        if sent:
            send(struck, number)
        raise KeyboardInterrupt

    fleet.send = interrupted
    with pytest.raises(KeyboardInterrupt):
        runner_over(fleet).run_strikes([Strike(1, "gateway-1", "freeze", 0.0, hold_seconds=12.0)])

    assert fleet.signals[sent:] == [(0.0, "gateway-1", signal.SIGCONT)]


def test_on_change_is_called_for_strike_notice_and_recovery():
    fleet = SimulatedFleet()
    changes = []
    runner = runner_over(fleet)
    runner.on_change = lambda each: changes.append(
        (each.noticed_seconds is None, each.revived_seconds is None)
    )
    runner.run_strikes([Strike(1, "gateway-1", "kill", 0.0)])
    assert changes == [(True, True), (False, True), (False, False)]
