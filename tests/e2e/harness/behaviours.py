"""What a custodian may do with a request: the good, the broken and the hostile. Each is a function (exchange) -> None."""

import threading
import time
import typing

if typing.TYPE_CHECKING:
    from .nodes import Exchange

Behaviour = typing.Callable[["Exchange"], None]
PATIENCE_S = 60  # for how long a silent or endless node holds on; its peer gives up first


def named(name: str, run: Behaviour) -> Behaviour:
    run.__name__ = name
    return run


def ok(status: int = 200, headers: tuple = (), body: bytes = b"") -> Behaviour:
    """What the protocol asks for: stores, answers with the receipt; 401, 404, 409 and 425 where they are due."""

    def run(exchange: "Exchange") -> None:
        refusal = exchange.judge_and_store()
        if refusal:
            exchange.answer(refusal)
        else:
            exchange.answer(status, [("quorate-receipt", exchange.receipt()), *headers], body)

    return named(f"ok({status})", run)


def status(code: int, *headers: tuple[str, str], body: bytes = b"") -> Behaviour:
    """Just this answer, nothing is stored."""
    return named(f"status({code})", lambda exchange: exchange.answer(code, list(headers), body))


def slow(seconds: float, then: Behaviour | None = None) -> Behaviour:
    """Waits first; the peer may be gone by then."""

    def run(exchange: "Exchange") -> None:
        exchange.endpoint.closing.wait(seconds)
        (then or ok())(exchange)

    return named(f"slow({seconds})", run)


def after(event: threading.Event, then: Behaviour | None = None) -> Behaviour:
    """Answers once the test has set the event."""

    def run(exchange: "Exchange") -> None:
        event.wait(PATIENCE_S)
        (then or ok())(exchange)

    return named("after", run)


def silent() -> Behaviour:
    """Takes the request and never answers."""
    return named("silent", lambda exchange: exchange.wait_for_peer_to_leave(PATIENCE_S))


def store_then_lose_answer() -> Behaviour:
    """Stores, then breaks the connection without a word."""

    def run(exchange: "Exchange") -> None:
        exchange.judge_and_store()
        exchange.close()

    return named("store_then_lose_answer", run)


def hang_up() -> Behaviour:
    """Breaks the connection without storing."""
    return named("hang_up", lambda exchange: exchange.close())


def no_receipt(code: int = 200) -> Behaviour:
    """Says that it stored, and proves nothing."""
    return named("no_receipt", lambda exchange: exchange.answer(code))


def forged_receipt(**changes) -> Behaviour:
    """A receipt signed over something else: deployment=, round_id=, node_id=, nonce=, body= (bytes), key= (KeyPair)."""
    return named(f"forged_receipt({','.join(changes)})",
                 lambda exchange: exchange.answer(200, [("quorate-receipt", exchange.receipt(**changes))]))


def receipt_text(*texts: str) -> Behaviour:
    """Receipt headers with these very texts; {valid} stands for a valid one."""
    return named("receipt_text", lambda exchange: exchange.answer(
        200, [("quorate-receipt", text.replace("{valid}", exchange.receipt())) for text in texts]))


def redirect_to_itself(code: int = 302) -> Behaviour:
    """Sends the client back to the same place; one who follows is seen in the list of requests."""
    return named(f"redirect({code})",
                 lambda exchange: exchange.answer(code, [("location", exchange.endpoint.url + "elsewhere")]))


def half_answer() -> Behaviour:
    """Cuts the response in the middle of its head, after the status line and before the receipt is complete."""

    def run(exchange: "Exchange") -> None:
        exchange.judge_and_store()
        exchange.send(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nquorate-receipt: " + exchange.receipt()[:40].encode())
        exchange.close()

    return named("half_answer", run)


def half_body(with_receipt: bool = True) -> Behaviour:
    """A complete head and a body that ends too early: the head is what counts."""

    def run(exchange: "Exchange") -> None:
        exchange.judge_and_store()
        receipt = [("quorate-receipt", exchange.receipt())] if with_receipt else []
        exchange.send_head(200, [*receipt, ("content-length", "1000")])
        exchange.send(b"only this")
        exchange.close()

    return named("half_body", run)


def endless_body(with_receipt: bool = True, code: int = 200) -> Behaviour:
    """A complete head, then bytes until the peer hangs up; `exchange.endpoint.endless_bytes` counts them."""

    def run(exchange: "Exchange") -> None:
        exchange.judge_and_store()
        receipt = [("quorate-receipt", exchange.receipt())] if with_receipt else []
        exchange.send_head(code, [*receipt, ("transfer-encoding", "chunked")])
        chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and not exchange.endpoint.closing.is_set() and exchange.send(chunk):
            exchange.endpoint.endless_bytes += 4096
        exchange.close()

    return named("endless_body", run)


def dribbling_body(pause: float = 0.05, with_receipt: bool = True) -> Behaviour:
    """A complete head, then a byte now and then: whoever waits for the end of the body waits long."""

    def run(exchange: "Exchange") -> None:
        exchange.judge_and_store()
        receipt = [("quorate-receipt", exchange.receipt())] if with_receipt else []
        exchange.send_head(200, [*receipt, ("content-length", "60000")])
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and not exchange.endpoint.closing.wait(pause) and exchange.send(b"x"):
            pass
        exchange.close()

    return named("dribbling_body", run)


def informational_first(*codes: int) -> Behaviour:
    """1xx answers before the final one, as HTTP allows."""

    def run(exchange: "Exchange") -> None:
        for code in codes or (102, 103):
            exchange.send(f"HTTP/1.1 {code} Wait\r\nquorate-receipt: v1a,none\r\n\r\n".encode())
        ok()(exchange)

    return named("informational_first", run)


def informational_for_ever(code: int = 102, pause: float = 0.02) -> Behaviour:
    """1xx answers and never a final one."""

    def run(exchange: "Exchange") -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and exchange.send(f"HTTP/1.1 {code} Wait\r\n\r\n".encode()):
            if exchange.endpoint.closing.wait(pause):
                break
        exchange.close()

    return named("informational_for_ever", run)


def huge_head(size: int = 4 << 20) -> Behaviour:
    """A head without end in sight."""

    def run(exchange: "Exchange") -> None:
        exchange.send(b"HTTP/1.1 200 OK\r\n")
        sent = 0
        while sent < size and exchange.send(b"x-filler: " + b"y" * 4000 + b"\r\n"):
            sent += 4012
        exchange.close()

    return named("huge_head", run)


def garbage(data: bytes = b"\x00\xff not http at all \r\n\r\n") -> Behaviour:
    """Bytes that are no HTTP."""

    def run(exchange: "Exchange") -> None:
        exchange.send(data)
        exchange.close()

    return named("garbage", run)
