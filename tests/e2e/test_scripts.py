"""The scripts that guard the build: they find what they are there to find, and are quiet otherwise."""

import importlib.machinery
import importlib.util
import os
import pathlib
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
    assert time.monotonic() - began < 5


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
    assert done.returncode == 1 and "'everything'" in done.stderr and "build, test, lint, demo, model, docker" in done.stderr


@pytest.mark.parametrize("git", ["absent", "ours", "foreign"])
def test_lint_looks_at_our_files_and_no_others(tmp_path, git):
    """With stand-ins for the tools: what matters is which files they get, in a clone, in somebody else's clone, without git."""
    tree, tools = tmp_path / "tree", tmp_path / "tools"
    for path in ("scripts", "coordinator/base", "build/obj"):
        (tree / path).mkdir(parents=True)
    tools.mkdir()
    shutil.copy(ROOT / "scripts" / "lint", tree / "scripts")
    for path in ("coordinator/base/a.c", "coordinator/base/b c.h", "d.py", "build/obj/generated.c"):
        (tree / path).write_text("")
    fakes = {tree / "scripts" / "check-includes": "", tools / "make": "",
             tools / "clang-format": "shift 2; for f; do echo \"saw $f\"; done"}
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(tmp_path), "GIT_CONFIG_GLOBAL": os.devnull}
    if git == "absent":
        fakes[tools / "git"] = "exit 127"
    else:
        (tree / ".gitignore").write_text("/build/\n")
        assert run("git", "init", "-q", cwd=tree, env=env).returncode == 0
        assert run("git", "add", "coordinator", cwd=tree, env=env).returncode == 0
    if git == "foreign":
        env["GIT_TEST_ASSUME_DIFFERENT_OWNER"] = "1"
        assert "dubious ownership" in run("git", "ls-files", cwd=tree, env=env).stderr
    for path, text in fakes.items():
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    done = run(tree / "scripts" / "lint", env=env)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert [line for line in done.stdout.splitlines() if line.startswith("saw ")] == \
        ["saw coordinator/base/a.c", "saw coordinator/base/b c.h"]
    (tree / "d.py").write_text("# TO" + "DO\n")
    (tree / "coordinator" / "base" / "a.c").write_text("\n" * 600)
    done = run(tree / "scripts" / "lint", env=env)
    assert done.returncode == 1 and "failed: sizes words" in done.stderr, done
    assert "coordinator/base/a.c: 600 lines" in done.stdout and "d.py:1:" in done.stdout
    shutil.rmtree(tree / "coordinator")
    done = run(tree / "scripts" / "lint", env=env)
    assert done.returncode == 1 and "failed: files" in done.stderr, done


def test_a_program_that_hangs_is_ended_with_all_that_it_started(tmp_path):
    """As pg_prove does with its psql: killed alone, it leaves one behind that holds its output open."""
    loader = importlib.machinery.SourceFileLoader("tests_run", str(ROOT / "tests" / "run"))
    runner = importlib.util.module_from_spec(importlib.util.spec_from_loader("tests_run", loader))
    loader.exec_module(runner)
    suite, began = runner.Suite("a test"), time.monotonic()
    command = ["sh", "-c", f"echo ok 1; sleep 100 & echo $! > {tmp_path}/pid; wait"]
    runner.run_tap(suite, "one that hangs", command, dict(os.environ), 1, True)
    assert time.monotonic() - began < 30
    assert (suite.passed, suite.failed) == (1, 1)
    left = pathlib.Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")

    def ended():
        try:
            return left.read_text().rsplit(")", 1)[1].split()[0] in "ZX"
        except OSError:  # gone
            return True

    deadline = time.monotonic() + 10  # a killed process takes a moment to die
    while not ended():
        assert time.monotonic() < deadline, "it outlived its suite"
        time.sleep(0.01)


def test_make_help_lists_the_targets():
    done = run("make", "help")
    assert done.returncode == 0
    for target in ("all", "check", "lint", "demo", "docker-check", "install", "clean"):
        assert f"make {target} " in done.stdout
