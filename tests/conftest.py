"""Fixtures of all suites: the real sample, small folders, and the profiles of hypothesis."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from debian import skip_or_fail
from kopitiam.synthetic import generate
from sampling import IS_FULL, LONG_SHARE, seed, unsampled
from sharing import ByWhatIsShared, longest_first

TESTS = Path(__file__).parent
TINY_SCALE = 0.0005
TINY_SEED = 7
SOUND_FILES = {
    "stores/stores.csv": "store_id,store_name\n1,North\n2,South\n",
    "menu_items/menu_items.csv": "item_id,item_name\n1,Espresso\n",
    "users/users_202401.csv": "user_id,birthdate\n7,1990-01-01\n",
    "transactions/transactions_202401.csv": (
        "transaction_id,store_id,user_id,final_amount,created_at\na,1,7.0,80.5,2024-01-01 10:00:00\n"
    ),
    "transaction_items/transaction_items_202401.csv": (
        "item_id,quantity,subtotal,created_at\n1,2,80.5,2024-01-01 10:00:00\n"
    ),
}

settings.register_profile("default", deadline=None, max_examples=200 if IS_FULL else 40)
settings.load_profile("default")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("hypothesis_seed") is None:
        config.option.hypothesis_seed = seed()


def pytest_report_header() -> str:
    return f"long tests: {'all' if IS_FULL else f'one of {LONG_SHARE}, and one rare one, drawn by {seed()}'}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "unit" in item.path.relative_to(TESTS).parts[:1]:
            item.add_marker("unit")
    if left_out := set(unsampled(items)):
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    longest_first(items)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByWhatIsShared:
    return ByWhatIsShared(config, log)


@pytest.fixture(autouse=True)
def unchanged_umask() -> Iterator[None]:
    """Code under test sets the umask of the process."""
    mask = os.umask(0o022)
    os.umask(mask)
    yield
    os.umask(mask)


@pytest.fixture(scope="session")
def real_sample() -> Path:
    """The folder with `input` and `expected`. Without it a test is skipped, in CI it fails."""
    folder = Path(__file__).parents[2] / "shared" / "data" / "real-sample"
    if not folder.is_dir():
        skip_or_fail("the real sample is not beside the checkout (../shared/data/real-sample)")
    return folder


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 7,300 generated transactions with their tables; read only."""
    folder = tmp_path_factory.mktemp("generated") / "tiny"
    generate(folder, TINY_SCALE, TINY_SEED)
    return folder


@pytest.fixture
def sound_folder(tmp_path: Path) -> Path:
    """One or two good rows in each table, for a test to damage."""
    folder = tmp_path / "exports"
    for name, content in SOUND_FILES.items():
        folder.joinpath(name).parent.mkdir(parents=True)
        folder.joinpath(name).write_text(content, encoding="utf-8")
    return folder
