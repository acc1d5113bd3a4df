"""Latencies of waiting, as a client sees them: waiting.py CONNINFO ROUNDS SAMPLES (see the script beside it).

One process and one event loop for all clients, so that no scheduling of client threads is measured. "Release": from just
before the holder sends its release (autocommit) to the answer at the waiter. "Expiry": from the expiry that the holder was
told to the answer at the waiter. Each waiter that was served becomes the holder, and the former holder waits at the end of
the queue, so their number stays the same.
"""

import select
import statistics
import sys
import time

from psycopg import pq


class Client:
    def __init__(self, conninfo):
        self.conn = pq.PGconn.connect(conninfo.encode())
        if self.conn.status != pq.ConnStatus.OK:
            sys.exit(self.conn.error_message.decode())
        self.conn.nonblocking = 1

    def send(self, sql):
        self.conn.send_query(sql.encode())
        while self.conn.flush():
            select.select([], [self.conn.socket], [])

    def answer(self):
        """The rows, or None while they are still to come."""
        self.conn.consume_input()
        if self.conn.is_busy():
            return None
        rows = []
        while (result := self.conn.get_result()) is not None:
            if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
                sys.exit(result.error_message.decode())
            rows += [[result.get_value(i, j) for j in range(result.nfields)] for i in range(result.ntuples)]
        return rows

    def ask(self, sql):
        self.send(sql)
        while (rows := self.answer()) is None:
            select.select([self.conn.socket], [], [])
        return rows


def lease_clock(client):
    """What to add to CLOCK_BOOTTIME to get lease time, in seconds: of the quickest of some calls."""
    best = None
    for _ in range(200):
        before = time.clock_gettime(time.CLOCK_BOOTTIME)
        told = float(client.ask("SELECT extract(epoch FROM lease.now())")[0][0])
        after = time.clock_gettime(time.CLOCK_BOOTTIME)
        if best is None or after - before < best[0]:
            best = (after - before, told - (before + after) / 2)
    return best[1]


class Queue:
    """A holder and waiters, in the order in which they wait."""

    def __init__(self, conninfo, waiters, ttl, call):
        self.ttl, self.call = ttl, call
        self.clients = [Client(conninfo) for _ in range(waiters + 2)]
        self.watcher = self.clients.pop()
        self.key = f"{call} {ttl} {waiters}"
        self.poll = select.poll()
        self.by_socket = {}
        for i, client in enumerate(self.clients):
            client.name = f"client {i}"
            self.poll.register(client.conn.socket, select.POLLIN)
            self.by_socket[client.conn.socket] = client
        self.holder = self.clients[0]
        self.epoch, self.expires_at = self.granted(self.holder.ask(self.request(self.holder)))
        for client in self.clients[1:]:
            self.wait(client)

    def request(self, client):
        asked = f"'{self.key}', '{client.name}', '{self.ttl}', '1 min'"
        answer = "epoch, extract(epoch FROM expires_at)"
        return f"SELECT {answer} FROM lease.acquire({asked})" if self.call == "function" else f"CALL lease.wait_acquire({asked})"

    def granted(self, rows):
        return (rows[0][0], float(rows[0][1])) if self.call == "function" else (rows[0][1], None)

    def wait(self, client):
        client.send(self.request(client))

    def settle(self):
        """Until everybody waits."""
        waiting = f"SELECT count(*) FROM lease.waiters WHERE key = '{self.key}'"
        while int(self.watcher.ask(waiting)[0][0]) != len(self.clients) - 1:
            time.sleep(0.001)

    def next(self, skip=None):
        """The next one that is granted the lease, when its answer is there, and the time."""
        while True:
            for socket, _ in self.poll.poll():
                client = self.by_socket[socket]
                rows = client.answer()
                if rows is None or client is skip:
                    continue
                now = time.clock_gettime(time.CLOCK_BOOTTIME)
                self.epoch, expires_at = self.granted(rows)
                return client, expires_at, now

    def release(self):
        """Seconds from the release to the next holder's answer."""
        former = self.holder
        began = time.clock_gettime(time.CLOCK_BOOTTIME)
        former.send(f"SELECT lease.release('{self.key}', '{former.name}', {self.epoch.decode()})")
        self.holder, _, now = self.next(skip=former)
        # its own answer may have come first
        while former.conn.is_busy():
            select.select([former.conn.socket], [], [])
            former.answer()
        former.answer()
        self.wait(former)
        return now - began

    def expiry(self, offset):
        """Seconds from the expiry to the next holder's answer."""
        former, expires_at = self.holder, self.expires_at
        self.holder, self.expires_at, now = self.next()
        self.wait(former)
        return now + offset - expires_at

    def close(self):
        # a server does not notice by itself that the client of a waiting session is gone
        self.watcher.ask(f"SELECT pg_terminate_backend(pid, 10000) FROM lease.waiters WHERE key = '{self.key}'")
        for client in [*self.clients, self.watcher]:
            client.conn.finish()


def told(name, rounds):
    medians = sorted(statistics.median(samples) for samples in rounds)
    all_samples = sorted(s for samples in rounds for s in samples)
    print(
        f"{name}: {1000 * statistics.median(medians):.3f} ms (median of {len(rounds)} rounds; "
        f"rounds {1000 * medians[0]:.3f} to {1000 * medians[-1]:.3f}; "
        f"99 % {1000 * all_samples[int(len(all_samples) * 0.99)]:.2f}, most {1000 * all_samples[-1]:.2f})",
        flush=True,
    )


def main():
    conninfo, rounds, samples = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    watcher = Client(conninfo)
    offset = lease_clock(watcher)

    def round_trips():
        measured = []
        for _ in range(samples):
            began = time.clock_gettime(time.CLOCK_BOOTTIME)
            watcher.ask("SELECT 1")
            measured.append(time.clock_gettime(time.CLOCK_BOOTTIME) - began)
        return measured

    told("for comparison: SELECT 1, there and back", [round_trips() for _ in range(rounds)])
    advisory = [Client(conninfo) for _ in range(2)]

    def advisory_locks():
        """PostgreSQL's own lock, unlocked by one session and given to another that waits."""
        measured = []
        holder, waiter = advisory
        holder.ask("SELECT pg_advisory_lock(1)")
        for _ in range(samples):
            waiter.send("SELECT pg_advisory_lock(1)")
            while int(watcher.ask("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")[0][0]) != 1:
                pass
            began = time.clock_gettime(time.CLOCK_BOOTTIME)
            holder.send("SELECT pg_advisory_unlock(1)")
            while waiter.answer() is None:
                select.select([waiter.conn.socket], [], [])
            measured.append(time.clock_gettime(time.CLOCK_BOOTTIME) - began)
            while holder.answer() is None:
                select.select([holder.conn.socket], [], [])
            holder, waiter = waiter, holder
        holder.ask("SELECT pg_advisory_unlock(1)")
        return measured

    told("for comparison: an advisory lock, from unlock to the waiter's client", [advisory_locks() for _ in range(rounds)])
    for call in ("function", "procedure"):
        for waiters in (1, 100):
            queue = Queue(conninfo, waiters, "1 hour", call)

            def releases():
                measured = []
                for _ in range(samples):
                    queue.settle()
                    measured.append(queue.release())
                return measured

            told(f"release to the waiter's client, {waiters} waiting in the {call}", [releases() for _ in range(rounds)])
            queue.close()
    for waiters in (1, 100):
        queue = Queue(conninfo, waiters, "30 ms", "function")
        measured = [[queue.expiry(offset) for _ in range(max(10, samples // 5))] for _ in range(rounds)]
        told(f"expiry to the waiter's client, {waiters} waiting", measured)
        queue.close()
    names = "hand_offs, wake_ups, passed_over, safety_ticks, safety_ticks_that_helped"
    print(names, "|".join(v.decode() for v in watcher.ask(f"SELECT {names} FROM lease.stats")[0]))


main()
