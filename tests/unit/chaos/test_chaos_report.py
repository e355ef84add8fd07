"""The chaos report: its figures, its complaints, and how it is printed."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopitiam.cli.chaos import show
from kopitiam.contracts.progress import Volume
from kopitiam_chaos.report import (
    ChaosReport,
    RowAccount,
    RunOutcome,
    Spread,
    StrikeRecord,
    TableAccount,
    processed_rows,
)

ROWS = RowAccount({"users": TableAccount(there=10, used=9, rejected=1, expected=9, processed=9)})
RUN = RunOutcome(client=1, run="a" * 16, seconds=3.0, rows=ROWS)
BACK = StrikeRecord(
    1, "gateway-1", "kill", 2.0, "h1", noticed_seconds=6.0, revived_seconds=8.0, is_replaced=True
)
BACK.runs_under_way["b" * 24] = "sealed"
FINE = ChaosReport(
    seed=7,
    seconds=60.0,
    planned=1,
    records=(BACK,),
    is_whole=True,
    runs=(RUN,),
    clients=1,
    clients_ended=1,
    leaders_by_epoch={1: ("monitor-3",), 2: ("monitor-2",)},
    violations=(),
    actions_by_epoch={1: {"monitor-3": 2}, 2: {"monitor-2": 1}},
)


def account(**changed):
    return RowAccount({"users": replace(ROWS.tables["users"], **changed)})


@pytest.mark.parametrize(
    ("changed", "lost", "doubled"),
    [
        ({}, 0, 0),
        ({"used": 8}, 1, 0),
        ({"used": 11}, 0, 2),
        ({"processed": 6}, 3, 0),
        ({"processed": 10}, 0, 1),
        ({"used": 8, "processed": 10}, 1, 1),
    ],
)
def test_lost_and_doubled_rows_are_counted_by_answers_and_by_registry(changed, lost, doubled):
    rows = account(**changed)
    assert (rows.lost, rows.doubled) == (lost, doubled)
    assert replace(RUN, rows=rows).is_exact == (not lost and not doubled)


@given(st.dictionaries(st.integers(0, 5), st.integers(0, 10**9)))
def test_processed_rows_are_summed_over_shards(rows):
    by_shard = {shard: Volume(1, count) for shard, count in rows.items()}
    assert processed_rows({"users": by_shard}) == {"users": sum(rows.values())}


@pytest.mark.parametrize(
    ("seconds", "spread"),
    [
        ([], Spread(0, None, None)),
        ([None], Spread(0, None, None)),
        ([3.0], Spread(1, 3.0, 3.0)),
        ([3.0, None, 1.0], Spread(2, 1.0, 3.0)),
        ([float(number) for number in range(1, 201)], Spread(200, 100.0, 198.0)),
    ],
)
def test_p50_and_p99_of_the_known_seconds(seconds, spread):
    assert Spread.of(seconds) == spread


def test_exact_runs_and_recovered_nodes_give_no_complaint():
    assert FINE.complaints == []
    report = FINE.to_dict()
    assert report["is_exact"] is True
    assert report["runs"] == {"made": 1, "verified": 1}
    assert report["rows"] == {"there": 10, "lost": 0, "doubled": 0}
    assert report["leaders_by_epoch"] == {"1": ["monitor-3"], "2": ["monitor-2"]}
    assert report["actions_by_epoch"] == {"1": {"monitor-3": 2}, "2": {"monitor-2": 1}}
    assert report["notice_seconds"] == {"count": 1, "p50": 6.0, "p99": 6.0}
    assert report["timeline"][0]["name"] == "gateway-1"
    assert json.loads(json.dumps(report)) == report


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"runs": (replace(RUN, differences=("results_query_3.csv: unexpected: x",)),)}, "unexpected: x"),
        ({"runs": (replace(RUN, error="run failed", rows=None),)}, "client 1, run a.*: run failed"),
        ({"runs": (replace(RUN, rows=account(processed=10)),)}, "0 rows lost, 1 counted twice"),
        ({"runs": ()}, "no run was made"),
        ({"records": (replace(BACK, revived_seconds=None),)}, "gateway-1: struck after 2.0 s, not recovered"),
        ({"planned": 2}, "only 1 of 2 strikes could be made"),
        ({"is_whole": False}, "the fleet is not whole"),
        (
            {"leaders_by_epoch": {4: ("monitor-2", "monitor-3")}},
            "epoch 4 had 2 leaders: monitor-2, monitor-3",
        ),
        ({"violations": ("leader: an epoch that went back",)}, "an epoch that went back"),
        ({"clients_ended": 0}, "1 of 1 clients did not end"),
    ],
)
def test_each_deviation_gives_one_complaint(changed, complaint):
    summary = replace(FINE, **changed)
    assert len(summary.complaints) == 1
    assert re.search(complaint, summary.complaints[0])
    assert summary.to_dict()["is_exact"] is False


def test_a_node_that_resumed_before_its_timeout_counts_as_recovered_and_not_as_noticed():
    resumed = StrikeRecord(1, "monitor-1", "freeze", 2.0, hold_seconds=3.0, revived_seconds=5.0)
    assert replace(FINE, records=(resumed,)).complaints == []
    assert replace(FINE, records=(resumed,)).notice == Spread(0, None, None)


def test_the_printed_report_has_the_timeline_and_the_totals(capsys):
    led = replace(BACK, number=2, name="monitor-3", deed="freeze", hold_seconds=4.0, was_leader=True)
    show(replace(FINE, planned=2, records=(BACK, replace(led, is_replaced=False, noticed_seconds=None))))
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert shown == [
        "after s victim done noticed s back s by",
        "2.0 gateway-1 on h1 killed 6.0 8.0 a new process",
        "2.0 monitor-3 on h1 (leader) frozen for 4.0 s – 8.0 itself",
        "",
        "strikes while a run was under way: 2 of 2",
        "runs verified: 1 of 1; rows: 10, lost 0, double 0",
        "noticed: 1, p50 6.0 s, p99 6.0 s; revived: 2, p50 8.0 s, p99 8.0 s",
        "leaders by epoch: 1: monitor-3, 2: monitor-2; actions of leaders in their logs: 3",
        "clients ended: 1 of 1; 60 s in all",
    ]


def test_complaints_are_printed_below_the_totals(capsys):
    show(replace(FINE, is_whole=False))
    assert capsys.readouterr().out.splitlines()[-1] == "the fleet is not whole"
