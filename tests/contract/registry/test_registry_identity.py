"""The identity of a registry, its growing mark, and the age of orphans."""

from kopitiam.registry import open_registry

DAY = 86_400.0


def test_the_identity_of_a_registry_is_stable_and_unique(place, registry, tmp_path) -> None:
    first = registry.identity()
    again = open_registry(place.url, place.home)
    other = open_registry("sqlite", tmp_path / "other")
    assert again.identity() == first
    assert other.identity().id != first.id
    again.close()
    other.close()


def test_a_registry_is_new_until_it_knows_a_node_or_a_run(registry, open_run) -> None:
    assert (registry.identity().is_used, registry.identity().mark) == (False, 0)
    open_run()
    assert registry.identity().is_used
    registry.take_over("gateway-1", "anna", 10)
    assert registry.identity().is_used


def test_a_mark_only_grows(registry) -> None:
    assert [registry.advance_mark().mark, registry.advance_mark().mark] == [1, 2]
    assert registry.advance_mark(beyond=40).mark == 41
    assert registry.advance_mark(beyond=7).mark == 42
    assert registry.identity() == registry.identity().__class__(registry.identity().id, 42, True)


def test_the_age_of_an_orphan_grows_by_bounded_steps_even_if_the_clock_jumps(registry, clock) -> None:
    assert registry.record_orphans(["a", "b"], 600) == {"a": 0, "b": 0}
    clock.advance(500)
    assert registry.record_orphans(["a", "b"], 600) == {"a": 500, "b": 500}
    clock.advance(30 * DAY)
    assert registry.record_orphans(["a", "c"], 600) == {"a": 1100, "c": 0}
    clock.advance(-30 * DAY)
    assert registry.record_orphans(["a", "b", "c"], 600) == {"a": 1100, "b": 0, "c": 0}
    assert registry.record_orphans([], 600) == {}
