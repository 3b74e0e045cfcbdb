"""The reference custodian with symmetric secrets in place of keys: what it takes, what it signs with, and how it must be started."""

import pytest

from custodian_client import BODY, COORDINATOR, KEY, Client, post, rows, signed_headers
from custodian_client import key_file, processes, start  # noqa: F401  (fixtures)
from harness import wire
from harness.wire import EnvelopeKey, Secret
from test_custodian_start import assert_refused, good_options, run, run_with

SHARED = Secret(bytes(range(0x40, 0x60)))
OTHER = Secret(bytes(range(0x60, 0x80)))
VECTOR = "v1,NNkz77vlKpCAlvdJG3nPXLIgIq62OcPbGtApJPLup8k="


@pytest.fixture
def secret_file(tmp_path):
    path = tmp_path / "node.secret"
    path.touch(mode=0o600)
    path.write_text(f"# the next one, then the one in use\n{OTHER.secret_text}\n\n{SHARED.secret_text}\n")
    return path


@pytest.fixture
def custodian(processes, secret_file, tmp_path):  # noqa: F811
    started = processes.custodian(1, None, None, tmp_path / "store.db", ("--secret", str(secret_file), "--log-level", "debug"))
    yield started
    for secret in (SHARED, OTHER):
        assert secret.secret_text[6:40] not in started.log and secret.seed.hex() not in started.log


def test_receipt_is_the_protocols_vector(custodian, tmp_path):
    for _ in range(2):
        answer = post(custodian.url, KEY, BODY, key=SHARED)
        assert (answer.status, answer.receipt) == (200, VECTOR)
    assert rows(tmp_path / "store.db") == [("demo", "rnd-1", 1, 1001, BODY)]


def test_the_secret_that_signed_the_request_signs_the_receipt(custodian):
    for number, secret in enumerate((SHARED, OTHER, SHARED)):
        key = EnvelopeKey("demo", f"r{number}", 1, 1)
        answer = post(custodian.url, key, BODY, key=secret)
        assert answer.receipt == secret.sign(wire.receipt_message(key, wire.sha256(BODY)))


def test_no_other_secret_and_no_key_is_believed(custodian, start, tmp_path):  # noqa: F811
    assert post(custodian.url, KEY, BODY, key=Secret()).status == 401
    assert post(custodian.url, KEY, BODY, key=COORDINATOR).status == 401
    assert rows(tmp_path / "store.db") == []
    with_keys = start()
    assert post(with_keys.url, KEY, BODY, key=SHARED).status == 401
    assert post(with_keys.url, KEY, BODY, key=Secret(COORDINATOR.public_bytes)).status == 401
    assert post(with_keys.url, KEY, BODY, key=COORDINATOR).status == 200


@pytest.mark.parametrize("before, status", [(7, 200), (8, 401)])
def test_one_good_signature_among_eight_is_enough(custodian, before, status):
    headers = signed_headers(KEY, BODY, SHARED)
    wrong = [Secret().sign(b"something else") for _ in range(before)]
    headers["webhook-signature"] = " ".join([COORDINATOR.sign(b"x"), "v1,c2VjcmV0", *wrong, headers["webhook-signature"]])
    with Client(custodian.url) as client:
        assert client.request("POST", "/", BODY, headers).status == status


def test_a_large_envelope(custodian):
    body = bytes(range(256)) * 16384
    answer = post(custodian.url, "demo:large:1:1", body, key=SHARED)
    assert answer.receipt == SHARED.sign(wire.receipt_message(EnvelopeKey("demo", "large", 1, 1), wire.sha256(body)))


# How it is started.


@pytest.mark.parametrize("changes", ({}, {"--key": None}, {"--coordinator-key": None}))
def test_either_secrets_or_keys(tmp_path, key_file, secret_file, changes):  # noqa: F811
    assert_refused(run_with(tmp_path, changes, "--secret", str(secret_file)), 2, "--secret", "--key", "--coordinator-key")


def test_neither(tmp_path):
    done = run_with(tmp_path, {"--key": None, "--coordinator-key": None})
    assert_refused(done, 2, "--key", "--coordinator-key", "--secret")


@pytest.mark.parametrize("text, said", (
    ("", "0 secrets"), ("# none\n\n", "0 secrets"), ("nonsense\n", "line 1"), (f"{SHARED.secret_text}\n\n1 = {OTHER.secret_text}\n", "line 3"),
    (COORDINATOR.secret_text + "\n", "whsec_"), (SHARED.secret_text[:-9] + "\n", "line 1"), ((SHARED.secret_text + "\n") * 9, "9 secrets")))
def test_a_file_without_1_to_8_secrets(tmp_path, secret_file, text, said):
    secret_file.write_text(text)
    options = {name: value for name, value in good_options(tmp_path).items() if name not in ("--key", "--coordinator-key")}
    done = run(*[part for pair in options.items() for part in pair], "--secret", str(secret_file))
    assert_refused(done, 2, str(secret_file), said)
    assert SHARED.secret_text[6:20] not in done.stderr and COORDINATOR.secret_text[5:40] not in done.stderr
    assert not (tmp_path / "store.db").exists()


@pytest.mark.parametrize("mode", (0o644, 0o640, 0o660))
def test_a_file_of_secrets_that_others_can_read(tmp_path, secret_file, mode):
    secret_file.chmod(mode)
    done = run_with(tmp_path, {"--key": None, "--coordinator-key": None}, "--secret", str(secret_file))
    assert_refused(done, 2, str(secret_file), "chmod 600")
