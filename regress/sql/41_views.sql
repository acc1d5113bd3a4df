--
-- The views: columns as promised, latest state, own pending changes included.
-- Proves: I6, A2 (an expired lease shows as lapsed at once)
--
\pset null '(null)'

-- At least these columns.
SELECT w.relname, w.attname AS missing FROM (VALUES
    ('leases', 'key'), ('leases', 'state'), ('leases', 'owner'), ('leases', 'epoch'), ('leases', 'expires_at'), ('leases', 'remaining'), ('leases', 'ttl'),
    ('leases', 'granted_at'), ('leases', 'renewed_at'), ('leases', 'granted_to'), ('leases', 'payload'), ('leases', 'in_flight'),
    ('claims', 'key'), ('claims', 'pid'), ('claims', 'kind'), ('claims', 'owner'), ('claims', 'epoch'), ('claims', 'since'), ('claims', 'deadline'), ('claims', 'sealed'),
    ('waiters', 'key'), ('waiters', 'pid'), ('waiters', 'owner'), ('waiters', 'position'), ('waiters', 'since'), ('waiters', 'deadline'), ('waiters', 'waits_for'), ('waiters', 'blocker_pid'),
    ('stats', 'database'),
    ('sweepers', 'database'), ('sweepers', 'pid'), ('sweepers', 'status'), ('sweepers', 'next_deadline'), ('sweepers', 'leases'), ('sweepers', 'last_error'),
    ('clock', 'lease_time'), ('clock', 'wall_time'), ('clock', 'difference')) w(relname, attname)
 WHERE NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = ('lease.' || w.relname)::regclass AND a.attname = w.attname AND a.attnum > 0);
-- All of them, in order; the counters are one type.
SELECT c.relname, a.attname, format_type(a.atttypid, NULL) AS type FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
 WHERE c.relnamespace = 'lease'::regnamespace AND c.relkind = 'v' AND a.attnum > 0 AND (c.relname <> 'stats' OR a.atttypid <> 'bigint'::regtype)
 ORDER BY c.relname, a.attnum;
SELECT string_agg(attname, ' ' ORDER BY attnum) AS counters FROM pg_attribute
 WHERE attrelid = 'lease.stats'::regclass AND attnum > 0 AND atttypid = 'bigint'::regtype;

-- lease.leases: one row per key.
SELECT acquired FROM lease.acquire('view held', 'ann', '90 min', NULL, '{"a": 1}');
SELECT acquired FROM lease.acquire('view free', 'ann', '1 hour');
SELECT status FROM lease.release('view free', 'ann', 1);
SELECT acquired FROM lease.acquire('view lapsed', 'ann', '1 s');
SELECT pg_sleep(1);
SELECT key, state, owner, epoch, expires_at > lease.now() AS live, remaining BETWEEN '89 min' AND '90 min' AS remaining, CASE state WHEN 'held' THEN ttl END AS ttl, payload, in_flight
  FROM lease.leases WHERE key LIKE 'view %' ORDER BY key;
SELECT expires_at - granted_at AS ttl, renewed_at - granted_at AS renewed, granted_to = current_user AS granted_to FROM lease.leases WHERE key = 'view held';
SELECT status FROM lease.renew('view held', 'ann', 1, '2 hours');
SELECT expires_at - renewed_at AS expires, ttl, renewed_at > granted_at AS renewed, state FROM lease.leases WHERE key = 'view held';
-- It agrees with inspect, key by key.
SELECT count(*) AS differ FROM lease.leases l, LATERAL lease.inspect(l.key) i
 WHERE (l.state, l.owner, l.epoch, l.expires_at, l.payload, l.in_flight) IS DISTINCT FROM (i.state, i.owner, i.epoch, i.expires_at, i.payload, i.in_flight);
SELECT count(*) - count(DISTINCT key) AS twice FROM lease.leases;

-- Own pending changes, and a savepoint's end.
BEGIN;
SELECT acquired FROM lease.acquire('view new', 'ann', '1 hour');
SELECT status FROM lease.release('view held', 'ann', 1);
SELECT acquired FROM lease.acquire('view lapsed', 'bob', '1 hour');
SELECT key, state, owner, epoch, payload, in_flight FROM lease.leases WHERE key LIKE 'view %' ORDER BY key;
SAVEPOINT a;
SELECT acquired FROM lease.acquire('view free', 'bob', '1 hour');
SELECT status FROM lease.release('view new', 'ann', 1);
SELECT key, state, owner, epoch, payload, in_flight FROM lease.leases WHERE key LIKE 'view %' ORDER BY key;
ROLLBACK TO a;
SELECT key, state, owner, epoch, payload, in_flight FROM lease.leases WHERE key LIKE 'view %' ORDER BY key;
ROLLBACK;
SELECT key, state, owner, epoch, payload, in_flight FROM lease.leases WHERE key LIKE 'view %' ORDER BY key;

-- lease.claims: what open transactions are changing, with the deadlines that bound it.
SELECT count(*) FROM lease.claims;
BEGIN;
SELECT expires_at AS acquire_expires FROM lease.acquire('view claim', 'ann', '1 hour') \gset
SELECT expires_at AS renew_expires FROM lease.renew('view held', 'ann', 1, '30 min') \gset
SELECT key, pid = pg_backend_pid() AS mine, kind, owner, epoch, since <= lease.now() AND since > lease.now() - interval '1 min' AS since, sealed,
       deadline = CASE key WHEN 'view claim' THEN :'acquire_expires'::timestamptz ELSE :'renew_expires' END AS deadline
  FROM lease.claims ORDER BY key;
-- over an own acquire a renewal does not make less of it; the deadline is the last one's
SELECT expires_at AS renew_expires FROM lease.renew('view claim', 'ann', 1, '2 hours') \gset
SELECT kind, deadline = :'renew_expires' AS deadline FROM lease.claims WHERE key = 'view claim';
-- a release's deadline is the expiry of what it releases
SELECT status FROM lease.release('view held', 'ann', 1);
SELECT kind, sealed FROM lease.claims WHERE key = 'view held';
ROLLBACK;
BEGIN;
SELECT expires_at FROM lease.inspect('view held') \gset
SELECT status FROM lease.release('view held', 'ann', 1);
SELECT kind, deadline = :'expires_at' AS deadline FROM lease.claims WHERE key = 'view held';
COMMIT;
-- what changes nothing but the row of an unowned key gives way to everybody, at any time
BEGIN;
SELECT * FROM lease.force_release('view free');
SELECT kind, owner, epoch, deadline, sealed FROM lease.claims;
ROLLBACK;
SELECT count(*) FROM lease.claims;
-- refusals claim nothing
BEGIN;
SELECT acquired FROM lease.acquire('view claim', 'ann', '1 hour');
COMMIT;
BEGIN;
SELECT acquired FROM lease.acquire('view claim', 'bob', '1 hour');
SELECT status FROM lease.renew('view claim', 'bob', 1, '1 hour');
SELECT status FROM lease.release('view claim', 'ann', 7);
SELECT state_of('view claim');
SELECT count(*) FROM lease.claims;
COMMIT;

-- lease.clock, lease.now(): one clock, running within a transaction.
SELECT count(*) AS rows, bool_and(difference IN (wall_time - lease_time, lease_time - wall_time)) AS difference, bool_and(difference BETWEEN '-10 s' AND '10 s') AS small FROM lease.clock;
BEGIN;
SELECT lease.now() AS t0 \gset
SELECT pg_sleep(0.001);
SELECT lease.now() - :'t0' >= interval '0.001 s' AS runs, (SELECT lease_time FROM lease.clock) >= :'t0' AS same;
COMMIT;
SELECT bool_and(later) AS never_back FROM (SELECT t >= lag(t, 1, t) OVER (ORDER BY i) AS later FROM (SELECT i, lease.now() AS t FROM generate_series(1, 10000) i OFFSET 0) s) l;
