"""A private CA and what it signs, made with the openssl command in a folder of the test."""

import base64
import hashlib
import pathlib
import ssl
import subprocess

ADDRESSES = "DNS:localhost,DNS:node.example,IP:127.0.0.1,IP:::1"


def openssl(*arguments, **options) -> bytes:
    done = subprocess.run(["openssl", *map(str, arguments)], stdin=options.pop("stdin", subprocess.DEVNULL), capture_output=True,
                          timeout=60, check=False, **options)
    assert done.returncode == 0, f"openssl {arguments}: {done.stderr.decode()}"
    return done.stdout


def pin(certificate: pathlib.Path) -> str:
    """As --node-pins wants it."""
    pem = openssl("x509", "-in", certificate, "-noout", "-pubkey")
    der = subprocess.run(["openssl", "pkey", "-pubin", "-outform", "der"], input=pem, capture_output=True, timeout=60, check=True).stdout
    return "sha256//" + base64.b64encode(hashlib.sha256(der).digest()).decode()


class Pair:
    """A certificate and its secret key."""

    def __init__(self, folder: pathlib.Path, name: str):
        self.certificate, self.key = folder / f"{name}.pem", folder / f"{name}.key"

    def draw_key(self) -> None:
        openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", self.key)
        self.key.chmod(0o600)

    @property
    def pin(self) -> str:
        return pin(self.certificate)

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context


class Authority(Pair):
    """A CA; every pair it makes has a name of its own in the folder."""

    def __init__(self, folder: pathlib.Path, name: str = "ca"):
        super().__init__(folder, name)
        self.folder, self.name, self._issued = folder, name, 0
        self.draw_key()
        openssl("req", "-x509", "-key", self.key, "-out", self.certificate, "-days", "30", "-subj", f"/CN=Test {name}")

    def issue(self, names: str = ADDRESSES, usage: str = "serverAuth", valid_from: str = "20200101000000Z",
              valid_until: str = "20991231235959Z", subject: str = "node") -> Pair:
        self._issued += 1
        made = Pair(self.folder, f"{self.name}-{self._issued}")
        made.draw_key()
        settings = self.folder / f"{self.name}-{self._issued}.cnf"
        database = self.folder / f"{self.name}-{self._issued}.index"
        database.touch()
        settings.write_text(
            f"[ca]\ndefault_ca = own\n[own]\ndatabase = {database}\nnew_certs_dir = {self.folder}\nrand_serial = yes\n"
            "default_md = sha256\npolicy = any\nx509_extensions = more\nunique_subject = no\n[any]\ncommonName = supplied\n"
            f"[more]\nbasicConstraints = CA:FALSE\nextendedKeyUsage = {usage}\n" + (f"subjectAltName = {names}\n" if names else "") +
            "[req]\ndistinguished_name = none\n[none]\n")
        request = self.folder / f"{self.name}-{self._issued}.csr"
        openssl("req", "-new", "-config", settings, "-key", made.key, "-subj", f"/CN={subject}", "-out", request)
        openssl("ca", "-batch", "-notext", "-config", settings, "-cert", self.certificate, "-keyfile", self.key, "-in", request,
                "-out", made.certificate, "-startdate", valid_from, "-enddate", valid_until)
        return made

    def client(self, **options) -> Pair:
        return self.issue(names="", usage="clientAuth", subject="coordinator", **options)
