"""Reads TAP, as cmocka and pgTAP print it."""

import dataclasses
import re

# cmocka prints "ok 1 - name", pg_prove --verbose prints what pgTAP says as it is; subtests are indented and their
# parent repeats their verdict, so that only unindented lines count.
RESULT = re.compile(r"^(not )?ok\b\s*(\d+)?")
PLAN = re.compile(r"^1\.\.(\d+)\b")


@dataclasses.dataclass
class Result:
    passed: int = 0
    failed: list[str] = dataclasses.field(default_factory=list)
    planned: int | None = None


def parse(output: str) -> Result:
    result = Result()
    for line in output.splitlines():
        plan, verdict = PLAN.match(line), RESULT.match(line)
        if plan:
            result.planned = (result.planned or 0) + int(plan.group(1))
        elif verdict and verdict.group(2):
            if verdict.group(1):
                result.failed.append(line)
            else:
                result.passed += 1
    return result


def problems(result: Result, status: int | None, timeout: int, plan_required: bool) -> list[str]:
    """One line per failure; also for what TAP alone does not show: a crash, a time-out, tests that never ran."""
    found = list(result.failed)
    ran = result.passed + len(result.failed)
    if status is None:
        found.append(f"did not end within {timeout} s")
    elif status < 0:
        found.append(f"ended by signal {-status}")
    elif plan_required and result.planned is None:
        found.append(f"no plan (exit status {status})")
    elif result.planned is not None and ran != result.planned:
        found.append(f"planned {result.planned} tests but ran {ran} (exit status {status})")
    elif status != 0 and not found:
        found.append(f"ended with status {status} although no test failed")
    elif ran == 0:
        found.append("ran no test")
    return found
