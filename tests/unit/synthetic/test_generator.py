"""Generated data as a whole: its files, its size, and the same bytes for the same seed."""

from hashlib import sha256
from pathlib import Path

import pytest

from kopitiam.contracts.errors import ConfigError, InputError
from kopitiam.synthetic import generate
from kopitiam.synthetic.generator import write_month_tables
from kopitiam.synthetic.months import plan

SMALL = 0.0005
MONTHLY = ("transactions", "transaction_items", "users")


def digests(out: Path) -> dict[str, str]:
    files = (path for path in out.rglob("*") if path.is_file())
    return {str(path.relative_to(out)): sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def small_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("synthetic") / "small"
    generate(out, SMALL, seed=7)
    return out


def test_the_same_seed_gives_the_same_bytes(small_set: Path, tmp_path: Path) -> None:
    generate(tmp_path / "again", SMALL, seed=7)

    assert digests(tmp_path / "again") == digests(small_set)


def test_another_seed_gives_other_bytes_in_every_monthly_file(small_set: Path, tmp_path: Path) -> None:
    generate(tmp_path / "other", SMALL, seed=8)

    first, second = digests(small_set), digests(tmp_path / "other")

    assert first.keys() == second.keys()
    same = {name for name, digest in first.items() if second[name] == digest}
    assert {Path(name).parent.name for name in same}.isdisjoint(MONTHLY)


def test_months_come_out_the_same_in_any_order(small_set: Path, tmp_path: Path) -> None:
    for month in reversed(plan(SMALL)):
        list(write_month_tables(tmp_path, 7, month))

    assert digests(tmp_path).items() <= digests(small_set).items()


def test_every_month_has_its_file_and_nothing_else_is_left(small_set: Path) -> None:
    labels = [f"{2023 + (6 + n) // 12}{(6 + n) % 12 + 1:02d}" for n in range(24)]
    expected = {f"{table}/{table}_{label}.csv" for table in MONTHLY for label in labels}
    expected |= {f"{table}/{table}.csv" for table in ("stores", "menu_items", "payment_methods", "vouchers")}

    assert set(digests(small_set)) == expected


def test_the_reported_counts_are_those_of_the_files(tmp_path: Path) -> None:
    generated = generate(tmp_path, SMALL, seed=1)

    files = list(tmp_path.rglob("*.csv"))
    assert generated.files == len(files)
    assert generated.bytes == sum(path.stat().st_size for path in files)
    for table, rows in generated.rows.items():
        lines = sum(path.read_bytes().count(b"\n") - 1 for path in (tmp_path / table).iterdir())
        assert lines == rows


def test_progress_ends_at_the_total_of_every_table(tmp_path: Path) -> None:
    last: dict[str, tuple[int, int]] = {}

    def note(table: str, done: int, total: int) -> None:
        assert last.get(table, (0, total))[0] < done <= total
        last[table] = (done, total)

    generated = generate(tmp_path, 0.0001, seed=1, progress=note)

    assert last == {table: (rows, rows) for table, rows in generated.rows.items()}


def test_a_folder_that_is_not_empty_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    with pytest.raises(InputError, match="not empty"):
        generate(tmp_path, SMALL, seed=1)

    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "taken"
    target.write_text("mine")

    with pytest.raises(InputError, match="is a file"):
        generate(target, SMALL, seed=1)


@pytest.mark.parametrize("scale", [0, -1, float("nan"), float("inf"), 11])
def test_an_invalid_scale_is_refused(tmp_path: Path, scale: float) -> None:
    with pytest.raises(ConfigError, match="scale"):
        generate(tmp_path, scale, seed=1)


def test_a_negative_seed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="seed"):
        generate(tmp_path, SMALL, seed=-1)
