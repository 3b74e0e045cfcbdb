"""The delivery protocol once more, in Python and from its specification alone: it judges what our C code sends."""

import base64
import dataclasses
import hashlib
import hmac
import re
import secrets

import nacl.public
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

WEBHOOK_ID = re.compile(r"([A-Za-z0-9_-]{1,128}):([A-Za-z0-9_-]{1,128}):([1-9][0-9]{0,4}):([1-9][0-9]{0,18})")


class KeyPair:
    """An Ed25519 pair with the texts that the specification writes for it."""

    def __init__(self, seed: bytes | None = None):
        self.seed = seed or secrets.token_bytes(32)
        self.private = Ed25519PrivateKey.from_private_bytes(self.seed)
        self.public_bytes = self.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    @property
    def secret_text(self) -> str:
        return "whsk_" + base64.b64encode(self.seed + self.public_bytes).decode()

    @property
    def public_text(self) -> str:
        return "whpk_" + base64.b64encode(self.public_bytes).decode()

    def sign(self, message: bytes) -> str:
        return "v1a," + base64.b64encode(self.private.sign(message)).decode()


class Secret:
    """A symmetric secret; in the place of a public text stands its id, by which `verify` finds it again."""

    known: dict[str, "Secret"] = {}

    def __init__(self, seed: bytes | None = None):
        self.seed = seed or secrets.token_bytes(32)
        self.known[self.public_text] = self

    @classmethod
    def parse(cls, text: str) -> "Secret":
        return cls(base64.b64decode(text.strip().removeprefix("whsec_"), validate=True))

    @property
    def secret_text(self) -> str:
        return "whsec_" + base64.b64encode(self.seed).decode()

    @property
    def public_text(self) -> str:
        return "whid_" + hashlib.sha256(self.seed).hexdigest()[:16]

    def sign(self, message: bytes) -> str:
        return "v1," + base64.b64encode(hmac.digest(self.seed, message, "sha256")).decode()


class SealPair:
    """An X25519 pair that envelopes are sealed to."""

    mark = b"qsealed\x01"

    def __init__(self, seed: bytes | None = None):
        self.seed = seed or secrets.token_bytes(32)
        self.private = nacl.public.PrivateKey(self.seed)

    @classmethod
    def parse(cls, text: str) -> "SealPair":
        return cls(base64.b64decode(text.strip().removeprefix("qbsk_"), validate=True))

    @property
    def secret_text(self) -> str:
        return "qbsk_" + base64.b64encode(self.seed).decode()

    @property
    def public_text(self) -> str:
        return "qbox_" + base64.b64encode(bytes(self.private.public_key)).decode()

    def seal(self, key, share: bytes) -> bytes:
        return self.mark + nacl.public.SealedBox(self.private.public_key).encrypt(self.mark + f"{key}\n".encode() + share)

    def unseal(self, key, envelope: bytes) -> bytes:
        assert envelope.startswith(self.mark)
        plain = nacl.public.SealedBox(self.private).decrypt(envelope[len(self.mark):])
        header = self.mark + f"{key}\n".encode()
        assert plain.startswith(header), f"{plain[:300]!r} is not for {key}"
        return plain[len(header):]


def verify(public_text: str, signature_text: str, message: bytes) -> bool:
    """True when `signature_text` is exactly one valid signature over `message`, "v1a,<base64>" by a key or "v1,<base64>" by a secret whose
    id is `public_text`."""
    if public_text.startswith("whid_"):
        return public_text in Secret.known and Secret.known[public_text].sign(message) == signature_text
    if not public_text.startswith("whpk_") or not re.fullmatch(r"v1a,[A-Za-z0-9+/]{86}==", signature_text):
        return False
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_text[5:], validate=True))
    try:
        key.verify(base64.b64decode(signature_text[4:], validate=True), message)
    except InvalidSignature:
        return False
    return True


@dataclasses.dataclass(frozen=True)
class EnvelopeKey:
    deployment: str
    round_id: str
    node_id: int
    nonce: int

    def __str__(self) -> str:
        return f"{self.deployment}:{self.round_id}:{self.node_id}:{self.nonce}"


def parse_webhook_id(text: str) -> EnvelopeKey | None:
    found = WEBHOOK_ID.fullmatch(text)
    return EnvelopeKey(found[1], found[2], int(found[3]), int(found[4])) if found else None


def request_message(webhook_id: str, timestamp: str, body: bytes) -> bytes:
    return f"{webhook_id}.{timestamp}.".encode() + body


def receipt_message(key: EnvelopeKey, body_sha256: str) -> bytes:
    return f"quorate-receipt-v1.{key.deployment}.{key.round_id}.{key.node_id}.{key.nonce}.{body_sha256}".encode()


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
