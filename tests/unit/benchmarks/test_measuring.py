"""Time, memory and failure of a measured command."""

import sys
from pathlib import Path

import pytest

from tools.benchmarks.measure import CommandError, measure

HOLD_100_MB = "import time; held = b'x' * 100_000_000; time.sleep(0.5)"
HOLD_IN_A_CHILD = (
    f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HOLD_100_MB!r}], check=True)"
)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_wall_time_includes_waiting():
    assert 0.3 <= measure(python("import time; time.sleep(0.3)")).seconds < 30


def test_memory_of_children_counts():
    assert measure(python(HOLD_IN_A_CHILD)).peak_bytes > 100_000_000


def test_a_failure_has_the_exit_code_and_the_tail_of_stderr():
    chatter = "import sys; print(*range(1000), sep='\\n', file=sys.stderr); sys.exit(7)"

    with pytest.raises(CommandError, match="exit code 7") as failure:
        measure(python(chatter))

    assert str(failure.value).endswith("998\n999")
    assert "\n500\n" not in str(failure.value)


def test_the_command_runs_in_a_session_of_its_own(tmp_path: Path):
    noted = tmp_path / "is_leader"

    measure(python(f"import os; open({str(noted)!r}, 'w').write(str(os.getsid(0) == os.getpid()))"))

    assert noted.read_text() == "True"


SPIN = "import time\nwhile time.process_time() < 1.0: pass\nprint(flush=True)"
SPIN_IN_A_CHILD = f"""
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {SPIN!r}], stdout=subprocess.PIPE)
child.stdout.readline()
os._exit(0)
"""


def test_cpu_of_a_child_that_is_never_waited_for_counts():
    """Such as Spark's JVM, which the resource usage of the command does not include."""
    assert measure(python(SPIN_IN_A_CHILD)).cpu_seconds >= 0.8
