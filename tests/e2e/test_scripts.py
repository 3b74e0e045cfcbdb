"""The scripts that guard the build: they find what they are there to find, and are quiet otherwise."""

import os
import shutil
import subprocess
import time

import pytest
from harness.build import ROOT


def run(*command, cwd=ROOT, **options):
    return subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **options)


@pytest.mark.parametrize("file, include, complaint", [
    ("coordinator/base/a.c", "db/b.h", "base may not include"),
    ("coordinator/wire/a.c", "db/b.h", "wire may not include"),
    ("coordinator/db/a.c", "transport/b.h", "db may not include"),
    ("coordinator/transport/a.c", "round/b.h", "transport may not include"),
    ("coordinator/round/a.c", "cli/b.h", "round may not include"),
    ("coordinator/main.c", "round/b.h", "main may not include"),
    ("custodian/a.c", "db/b.h", "custodian may not include"),
    ("coordinator/base/a.c", "../db/b.h", "from the root of the sources"),
    ("coordinator/base/a.c", "b.h", "from the root of the sources"),
    ("coordinator/extra/a.c", "base/b.h", "no layer"),
    ("coordinator/cli/a.c", "round/b.h", None),
    ("coordinator/round/a.c", "transport/b.h", None),
    ("custodian/a.c", "wire/b.h", None),
    ("custodian/a.c", "b.h", None)])
def test_includes_go_one_way(tmp_path, file, include, complaint):
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "check-includes", tmp_path / "scripts")
    source = tmp_path / file
    source.parent.mkdir(parents=True)
    source.write_text(f'#include <stdio.h>\n#include "{include}"\n')
    done = run(tmp_path / "scripts" / "check-includes")
    assert done.returncode == (1 if complaint else 0)
    assert complaint in done.stderr if complaint else done.stderr == ""


def test_nothing_to_check_is_not_clean(tmp_path):
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "check-includes", tmp_path / "scripts")
    assert run(tmp_path / "scripts" / "check-includes").returncode == 1


def test_install_deps_is_silent_and_quick_when_nothing_is_missing():
    began = time.monotonic()
    done = run("scripts/install-deps", "build", "test")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert time.monotonic() - began < 1


def test_install_deps_says_what_is_missing_and_what_for(tmp_path):
    """With a dpkg-query that knows of nothing, and --check, so that nothing is installed."""
    fake = tmp_path / "dpkg-query"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    done = run("scripts/install-deps", "--check", "build", env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert done.returncode == 1 and done.stdout == ""
    assert "libsodium-dev" in done.stderr and "Ed25519" in done.stderr
    assert "apt-get install --no-install-recommends gcc" in done.stderr and "|" not in done.stderr


def test_install_deps_refuses_an_unknown_group():
    done = run("scripts/install-deps", "everything")
    assert done.returncode == 1 and "'everything'" in done.stderr and "build, test, lint, demo, docker" in done.stderr


def test_make_help_lists_the_targets():
    done = run("make", "help")
    assert done.returncode == 0
    for target in ("all", "check", "lint", "demo", "docker-check", "install", "clean"):
        assert f"make {target} " in done.stdout
