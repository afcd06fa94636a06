"""Without the extras: the drop-in and `plan` work, and whatever needs one says which."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXTRAS = ("matplotlib", "scipy", "numba", "simpy", "datasketches")
TRIAGE = Path(__file__).parents[1] / "examples" / "triage.yaml"


def bare(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a Python that has none of the extras."""
    without = f"import sys\nfor name in {EXTRAS}: sys.modules[name] = None\n"
    return subprocess.run([sys.executable, "-c", without + program], capture_output=True, text=True, timeout=120)


def command(*args: str) -> subprocess.CompletedProcess[str]:
    return bare(f"sys.argv = ['streamshed', *{args!r}]\nfrom streamshed.cli.app import main\nmain()")


@pytest.mark.parametrize("name", ["shed", "run", "handle", "load_aware", "load_network"])
def test_everything_can_be_imported(name: str) -> None:
    ran = bare(f"import streamshed as ss\nss.{name}")
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("policy", ["lsrm-semantic", "lsrm-random", "input-uniform", "latency"])
def test_plan_works(policy: str) -> None:
    ran = command("plan", str(TRIAGE), "--excess", "0.5", "--policy", policy)
    assert ran.returncode == 0, ran.stderr
    assert "->" in ran.stdout


@pytest.mark.parametrize(
    ("args", "package", "extra"),
    [
        (["plan", str(TRIAGE), "--excess", "0.5", "--policy", "optimal"], "scipy", "full"),
        (["simulate", str(TRIAGE), "--policy", "lsrm-random"], "numba", "full"),
        (["demo"], "matplotlib", "lab"),
        (["bench", "network", "--out", "."], "matplotlib", "lab"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_what_needs_an_extra_says_which(args: list[str], package: str, extra: str) -> None:
    ran = command(*args)
    assert ran.returncode == 2, ran.stdout + ran.stderr
    assert f"this needs {package}" in ran.stderr
    assert f'pip install "streamshed[{extra}]"' in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_drop_in_user_loads_none_of_them() -> None:
    program = f"import sys, streamshed as ss\nss.shed\nprint([name for name in {EXTRAS} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ran.stdout.strip() == "[]", ran.stderr
