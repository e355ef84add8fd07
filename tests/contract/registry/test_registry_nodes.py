"""Nodes: the registry has the latest report of each node's latest epoch."""

from dataclasses import replace

import pytest

from kopitiam.contracts.errors import StaleEpoch
from kopitiam.contracts.messages import NodeRecord
from kopitiam.registry import Fence

GATEWAY = NodeRecord("gateway-1", "gateway", 4711, "http://127.0.0.1:8440", "alive", 1000.5, 2)
MONITOR = NodeRecord("monitor-1", "monitor", None, None, "dead", 999.0, 7, "revived in vain", True)


def test_nodes_are_listed_by_name(registry) -> None:
    assert registry.nodes() == []
    for node in (MONITOR, GATEWAY):
        assert registry.report_node(node)
    assert registry.nodes() == [GATEWAY, MONITOR]


def test_a_node_is_known_as_it_was_last_reported(registry) -> None:
    registry.report_node(GATEWAY)
    dead = replace(GATEWAY, state="dead", since=1020.0, alarm="silent", pid=None, url=None)
    assert registry.report_node(dead)
    assert registry.nodes() == [dead]
    reborn = replace(GATEWAY, pid=4712, epoch=3, leader=True)
    assert registry.report_node(reborn)
    assert registry.nodes() == [reborn]


def test_an_earlier_epoch_of_a_node_is_not_reported(registry) -> None:
    registry.report_node(GATEWAY)
    assert not registry.report_node(replace(GATEWAY, epoch=1, state="dead"))
    assert registry.nodes() == [GATEWAY]


def test_a_forgotten_node_is_gone_and_may_come_back(registry) -> None:
    registry.report_node(GATEWAY)
    registry.report_node(MONITOR)
    registry.delete_node("gateway-1")
    registry.delete_node("gateway-1")
    assert registry.nodes() == [MONITOR]
    assert registry.report_node(replace(GATEWAY, epoch=1))


def test_a_leader_that_was_replaced_reports_nothing(registry) -> None:
    old = Fence("leader", registry.take_over("leader", "monitor-1", 10), "monitor-1")
    new = Fence("leader", registry.take_over("leader", "monitor-2", 10), "monitor-2")
    with pytest.raises(StaleEpoch):
        registry.report_node(GATEWAY, fence=old)
    assert registry.nodes() == []
    assert registry.report_node(GATEWAY, fence=new)
    with pytest.raises(StaleEpoch):
        registry.delete_node("gateway-1", fence=old)
    assert registry.nodes() == [GATEWAY]
