"""Timing written plainly: exact fractions, every rule checked for every command at every event.

Also random machines and programs to compare with.
"""

from fractions import Fraction

import numpy as np

from tilewright.machine import Engine, Machine, Memory, Move
from tilewright.simulate import timed_table


def shares(flows, limits):
    """Max-min fair rates of flows {who: (own limit or None, memories)}, exactly."""
    rates = dict.fromkeys(flows, Fraction(0))
    growing = set(flows)
    while growing:
        room = []
        for who in growing:
            own, _ = flows[who]
            if own is not None:
                room.append(own - rates[who])
        for memory, limit in limits.items():
            if limit is not None:
                users = [who for who in growing if memory in flows[who][1]]
                used = sum(rates[who] for who in flows if memory in flows[who][1])
                if users:
                    room.append((limit - used) / len(users))
        step = min(room)
        for who in growing:
            rates[who] += step
        stopped = set()
        for who in growing:
            own, memories = flows[who]
            if own is not None and rates[who] == own:
                stopped.add(who)
            for memory in memories:
                used = sum(rates[other] for other in flows if memory in flows[other][1])
                if limits[memory] is not None and used == limits[memory]:
                    stopped.add(who)
        growing -= stopped
    return rates


def simulate_plainly(commands, machine):
    """(start, data, end) of each command as lists of fractions; None when the program is stuck."""
    n = len(commands)
    engine = [int(c["engine"]) for c in commands]
    move = [machine.moves[c["move"]] if c["move"] >= 0 else None for c in commands]
    size = [int(c["bytes"]) for c in commands]
    cycles = [int(c["cycles"]) for c in commands]
    latency = [int(c["latency"]) for c in commands]
    waits = [list(map(int, c["waits"])) for c in commands]
    mine = [[c for c in range(n) if engine[c] == e] for e in range(len(machine.engines))]
    limits = {
        memory.name: None if memory.bytes_per_cycle is None else Fraction(memory.bytes_per_cycle)
        for memory in machine.memories
    }
    issue, start, data, flowed, end = ([None] * n for _ in range(5))
    left = [Fraction(s) for s in size]
    now = Fraction(0)

    def completed(e):
        return sum(end[c] is not None for c in mine[e])

    def may_issue(c):
        if issue[c] is not None or (c and issue[c - 1] is None):
            return None
        inside = [d for d in mine[engine[c]] if issue[d] is not None and end[d] is None]
        if len(inside) >= machine.engines[engine[c]].queue:
            return None
        return (issue[c - 1] if c else Fraction(0)) + machine.issue_cycles

    def may_start(c):
        if issue[c] is None or start[c] is not None:
            return False
        before = [d for d in mine[engine[c]] if d < c]
        if any(start[d] is None for d in before):
            return False
        running = [d for d in before if end[d] is None]
        if running and (move[c] is None or any(move[d] is None for d in running)):
            return False
        if move[c] is not None and len(running) >= move[c].in_flight:
            return False
        return all(completed(e) >= waits[c][e] for e in range(len(mine)))

    def may_be_busy(c):
        if start[c] is None or data[c] is not None:
            return False
        if any(end[d] is None for d in mine[engine[c]] if d < c):
            return False
        return now >= start[c] + latency[c]

    while any(e is None for e in end):
        again = True
        while again:
            again = False
            for c in range(n):
                if data[c] is not None and flowed[c] is None and left[c] == 0:
                    flowed[c] = now
                    again = True
                if flowed[c] is not None and end[c] is None and now >= data[c] + cycles[c]:
                    end[c] = now
                    again = True
                at = may_issue(c)
                if at is not None and now >= at:
                    issue[c] = now
                    again = True
                if may_start(c):
                    start[c] = now
                    again = True
                if may_be_busy(c):
                    data[c] = now
                    again = True
        flows = {
            c: (
                None if move[c] is None else Fraction(move[c].bytes_per_cycle),
                [machine.main] if move[c] is None else [move[c].source, move[c].target],
            )
            for c in range(n)
            if data[c] is not None and flowed[c] is None
        }
        rates = shares(flows, limits)
        events = [now + left[c] / rates[c] for c in flows]
        for c in range(n):
            at = may_issue(c)
            if at is not None:
                events.append(at)
            if start[c] is not None and data[c] is None:
                events.append(start[c] + latency[c])
            if data[c] is not None and end[c] is None:
                events.append(data[c] + cycles[c])
        events = [at for at in events if at > now]
        if not events:
            return None if any(e is None for e in end) else (start, data, end)
        later = min(events)
        for c in flows:
            left[c] -= rates[c] * (later - now)
        now = later
    return start, data, end


def random_machine(rng):
    """Two to four engines, with moves of every kind; main memory always has a limit."""
    engines = tuple(
        Engine(name=f"e{i}", queue=int(rng.integers(1, 6))) for i in range(rng.integers(2, 5))
    )

    def limit():
        return None if rng.random() < 0.6 else float(rng.choice([3, 8, 16, 40]))

    memories = (
        Memory(name="dram", bytes_per_cycle=float(rng.choice([4, 10, 16, 64]))),
        Memory(name="a", bytes=4096, bytes_per_cycle=limit()),
        Memory(name="b", bytes=4096, bytes_per_cycle=limit()),
    )
    ends = [("dram", "a"), ("dram", "b"), ("a", "dram"), ("b", "dram"), ("a", "b")]
    moves = tuple(
        Move(
            name=f"m{i}",
            source=source,
            target=target,
            engine=engines[int(rng.integers(len(engines)))].name,
            bytes_per_cycle=float(rng.choice([2, 5, 16, 100])),
            in_flight=int(rng.choice([1, 1, 2, 3, 8])),
        )
        for i, (source, target) in enumerate(ends)
    )
    return Machine(
        name="random",
        clock_hz=1e9,
        memories=memories,
        moves=moves,
        engines=engines,
        primitives=(),
        issue_cycles=int(rng.choice([0, 1, 1, 5])),
    )


def random_program(rng, machine, size):
    """TIMED records whose waits look back, and now and then a little ahead."""
    table = timed_table(size)
    counts = np.zeros(8, np.int64)
    engines = len(machine.engines)
    for c in range(size):
        e = int(rng.integers(engines))
        row = table[c]
        row["engine"] = e
        row["kernel"] = c * 3 // size
        moves = [i for i, m in enumerate(machine.moves) if m.engine == machine.engines[e].name]
        if moves and rng.random() < 0.7:
            row["move"] = int(rng.choice(moves))
            row["bytes"] = int(rng.choice([0, 1, 7, 64, 333]))
            row["latency"] = int(rng.choice([0, 3, 20, 50]))
            row["cycles"] = int(rng.choice([0, 0, 0, 40]))
        else:
            row["cycles"] = int(rng.choice([0, 1, 10, 70]))
            row["latency"] = int(rng.choice([0, 0, 4]))
            row["bytes"] = int(rng.choice([0, 0, 0, 50]))
        for other in range(engines):
            if rng.random() < 0.35:
                ahead = int(rng.random() < 0.03)
                row["waits"][other] = max(0, counts[other] - int(rng.integers(0, 4)) + ahead)
        counts[e] += 1
    final = np.bincount(table["engine"], minlength=8)
    table["waits"] = np.minimum(table["waits"], final)
    return table
