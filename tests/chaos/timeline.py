"""The story of one round, for whoever has to find out what went wrong: rows, answers, requests, faults and log lines by time."""

import time

from facts import Facts


def tell(facts: Facts, round_id: str) -> str:
    row, entry = facts.rounds.get(round_id), facts.book.entries.get(round_id)
    if row is None and entry is None:
        return f"nothing is known of {round_id!r}"
    events: list[tuple[float, str]] = []
    if row is not None:
        for name in ("opened_at", "escalate_at", "escalated_at", "deadline_at", "fresh_until", "closed_at", "collected_at", "dead_lettered_at",
                     "settled_at"):
            if row[name] is not None:
                events.append((row[name].timestamp(), f"ROUND {name}"))
        for attempt in facts.attempts.get(round_id, []):
            what = f"node {attempt['node_id']} {attempt['route']} {attempt['attempt']}"
            events.append((attempt["reserved_at"].timestamp(), f"attempt {what} reserved (now {attempt['coordinator']}'s, {attempt['resends']} resends)"))
            if attempt["finished_at"] is not None:
                events.append((attempt["finished_at"].timestamp(), f"attempt {what} finished: {attempt['outcome']} {attempt['http_status'] or ''}"))
        for ack in facts.acks.get(round_id, []):
            events.append((ack["acked_at"].timestamp(), f"ACK node {ack['node_id']} {ack['route']} {ack['attempt']}{' late' if ack['late'] else ''}"))
    for (of, node_id, route), seen in facts.requests.items():
        if of == round_id:
            events += [(wall, f"request reached node {node_id} {route}, answered {status or '?'}") for wall, status in seen]
    for answer in entry.answers if entry else []:
        events.append((answer.told, f"collect, asked {answer.told - answer.asked:.3f} s before, said {answer.text} {list(answer.nodes) or ''}"))
    events += facts.log_lines(round_id)
    if not events:
        return f"{round_id}: never there; its dealer knows {entry}"
    begin, end = min(at for at, _ in events if at) - 3, max(at for at, _ in events) + 1
    for window in facts.record.touching(begin, end):
        name = f"{window.fault.kind} {window.fault.target}{' (this round)' if round_id in window.rounds else ''}"
        events.append((window.start, f"FAULT {name} begins"))
        if window.end is not None:
            events.append((window.end, f"FAULT {name} is over"))
    for start, over in facts.record.gaps:
        if start <= end and over >= begin:
            events += [(start, "COMMITS stop"), (over, "COMMITS succeed again")]
    head = [f"--- {round_id}: {row['state'] if row else 'not in the database'}"]
    if row is not None:
        head.append("    " + ", ".join(f"{name}={row[name]}" for name in ("nonce", "quorum", "node_ids", "per_share_timeout", "retry_budget", "max_backoff",
                                                                        "after_quorum", "quorum_nodes", "close_reason")))
        head += [f"    node {d['node_id']}: {d['state']}, {d['attempts']} attempts, last {d['last_outcome']}" for d in facts.deliveries.get(round_id, [])]
    if entry is not None:
        head.append(f"    its dealer: {entry.known}, cancelled={entry.cancelled}, sure of nodes {sorted(entry.accepted)}, unsure of {sorted(entry.maybe)}")
    return "\n".join(head + [f"    {time.strftime('%H:%M:%S', time.gmtime(at))}.{int(at * 1000) % 1000:03d} {at - begin - 3:+9.3f} {what}"
                             for at, what in sorted(events)])
