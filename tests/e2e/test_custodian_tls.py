"""The reference custodian over HTTPS: how it is started, what clients see of it, and a certificate that changes while it runs."""

import concurrent.futures
import http.client
import signal
import ssl
import urllib.parse

import pytest

from custodian_client import BODY, COORDINATOR, KEY, VECTOR_RECEIPT, Answer, rows, signed_headers
from custodian_client import key_file, processes, start  # noqa: F401  (fixtures)
from harness.certificates import Authority
from test_custodian_start import assert_refused, run_with


@pytest.fixture
def ca(tmp_path):
    return Authority(tmp_path)


def serving(pair, client_ca=None):
    return ("--tls-cert", str(pair.certificate), "--tls-key", str(pair.key),
            *(("--tls-client-ca", str(client_ca.certificate)) if client_ca else ()))


class Client:
    """One connection, whose handshake is done."""

    def __init__(self, url, ca, pair=None):
        parts = urllib.parse.urlsplit(url)
        context = ssl.create_default_context(cafile=ca.certificate)
        if pair:
            context.load_cert_chain(pair.certificate, pair.key)
        self.http = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=20, context=context)
        self.http.connect()
        self.certificate = self.http.sock.getpeercert(binary_form=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.close()

    def send(self, key=KEY, body=BODY):
        self.http.request("POST", "/", body, signed_headers(key, body))
        return Answer(self.http.getresponse())


def der(pair):
    return ssl.PEM_cert_to_DER_cert(pair.certificate.read_text())


def test_the_protocol_is_the_same(start, ca):  # noqa: F811
    custodian = start(*serving(ca.issue()))
    assert "valid_until=2099-12-31T23:59:59Z" in custodian.wait_line("event=certificate ")
    custodian.wait_line("event=listening .*scheme=https")
    with Client(custodian.url, ca) as client:
        for _ in range(3):
            answer = client.send()
            assert (answer.status, answer.receipt) == (200, VECTOR_RECEIPT)
    assert rows(custodian.store) == [("demo", "rnd-1", 1, 1001, BODY)]


def test_no_session_key_is_written_to_a_file(processes, key_file, ca, tmp_path):  # noqa: F811
    """GnuTLS would, where the environment names one."""
    key_log = tmp_path / "keys"
    custodian = processes.custodian(1, key_file, COORDINATOR.public_text, options=serving(ca.issue()), under=("env", f"SSLKEYLOGFILE={key_log}"))
    with Client(custodian.url, ca) as client:
        assert client.send().status == 200
    assert not key_log.exists()


def test_large_envelopes_on_many_connections(start, ca):  # noqa: F811
    """Requests wait suspended for the writer, as without TLS."""
    custodian = start(*serving(ca.issue(), ca))
    pair, body = ca.client(), bytes(range(256)) * 8192

    def one(number):
        with Client(custodian.url, ca, pair) as client:
            return [client.send(f"demo:r{number}-{turn}:1:1", body).status for turn in range(3)]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert list(pool.map(one, range(16))) == [[200] * 3] * 16
    assert len(rows(custodian.store)) == 48


def test_a_certificate_changes_while_it_runs(start, ca, tmp_path):  # noqa: F811
    """Connections there are go on; new ones see the new certificate, and the new CA of clients is asked."""
    first, second, clients = ca.issue(), ca.issue(), Authority(tmp_path, "clients")
    old, new = ca.client(), clients.client()
    custodian = start(*serving(first, ca))
    with Client(custodian.url, ca, old) as before:
        assert before.certificate == der(first) and before.send().status == 200
        files = [(second.certificate, first.certificate), (second.key, first.key)]
        trusted = ca.certificate.read_text()
        root = tmp_path / "root.pem"
        root.write_text(trusted)
        for source, target in files:
            target.write_text(source.read_text())
        ca.certificate.write_text(clients.certificate.read_text())
        seen = len(custodian.lines)
        custodian.kill(signal.SIGHUP)
        custodian.wait_line("event=certificate ", since=seen)
        ca.certificate.write_text(trusted)
        with Client(custodian.url, ca, new) as after:
            assert after.certificate == der(second) and after.send().status == 200
        assert before.send().status == 200
    with pytest.raises(OSError), Client(custodian.url, ca, old) as client:
        client.send()


def test_a_certificate_that_cannot_be_read_again_changes_nothing(start, ca):  # noqa: F811
    pair = ca.issue()
    custodian = start(*serving(pair))
    good = pair.certificate.read_text()
    pair.certificate.write_text("half a certif")
    custodian.kill(signal.SIGHUP)
    line = custodian.wait_line("event=certificate_not_reloaded")
    assert str(pair.certificate) in line and "level=error" in line
    pair.certificate.write_text(good)
    with Client(custodian.url, ca) as client:
        assert client.send().status == 200
    assert custodian.stop() == 0


def test_many_reloads_under_load_and_a_stop(start, ca):  # noqa: F811
    custodian = start(*serving(ca.issue(), ca), log_level="info")
    pair = ca.client()

    def one(number):
        statuses = set()
        for turn in range(12):
            with Client(custodian.url, ca, pair) as client:
                statuses.add(client.send(f"demo:r{number}-{turn}:1:1", BODY).status)
        return statuses

    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        working = [pool.submit(one, number) for number in range(4)]
        while not all(each.done() for each in working):
            custodian.popen.send_signal(signal.SIGHUP)
            concurrent.futures.wait(working, 0.02)
        assert [each.result() for each in working] == [{200}] * 4
    assert custodian.stop() == 0


def test_only_options_that_go_together(tmp_path, key_file, ca):  # noqa: F811
    pair, other = ca.issue(), ca.issue()
    certificate, key = ("--tls-cert", str(pair.certificate)), ("--tls-key", str(pair.key))
    client_ca = ("--tls-client-ca", str(ca.certificate))
    assert_refused(run_with(tmp_path, {}, *certificate), 2, "--tls-cert", "--tls-key")
    assert_refused(run_with(tmp_path, {}, *key), 2, "--tls-cert", "--tls-key")
    assert_refused(run_with(tmp_path, {}, *client_ca), 2, "--tls-client-ca", "--tls-cert")
    assert_refused(run_with(tmp_path, {}, *certificate, "--tls-key", str(other.key)), 2, str(other.key), "password")
    assert_refused(run_with(tmp_path, {}, *certificate, *key, "--tls-client-ca", str(pair.key)), 2, str(pair.key), "no certificate of a CA")
    pair.key.chmod(0o644)
    assert_refused(run_with(tmp_path, {}, *certificate, *key), 2, str(pair.key), "chmod 600")
    assert_refused(run_with(tmp_path, {}, "--tls-cert", str(tmp_path / "no"), *key), 2, "--tls-cert", "No such file")
    assert not (tmp_path / "store.db").exists()
