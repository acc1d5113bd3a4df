--
-- The four operations in one session: from a key never seen to a key taken over, and every refusal.
-- Proves: I1, I2, I3, I4, I8, I10, I11, A1 (a lapsed holder is refused at its very next call), A2 (an expired key is had at the first call)
--
\pset null '(null)'

-- A key never seen is free and has the floor's epoch; looking at it does not make it known.
SELECT state, owner, epoch, expires_at, remaining, payload, in_flight FROM lease.inspect('op');
SELECT count(*) FROM lease.leases WHERE key = 'op';

-- Acquire: epoch 1.
SELECT acquired, epoch, expires_at > lease.now() AS live FROM lease.acquire('op', 'ann', '1 hour');
SELECT state, owner, epoch, expires_at > lease.now() AS live,
       remaining > '59 min' AND remaining <= '1 hour' AS remaining, payload, in_flight FROM lease.inspect('op');

-- Held by another: not acquired, and nothing changes (not_acquirable).
CREATE TEMP TABLE before AS SELECT key, state, owner, epoch, expires_at, ttl, granted_at, renewed_at, granted_to, payload, in_flight FROM lease.leases;
SELECT * FROM lease.acquire('op', 'bob', '1 hour');
SELECT * FROM lease.acquire('op', 'bob', '1 hour', NULL, '{"at": "bob"}');
-- Renew and release: the holder is checked first, the lapse next, the epoch last.
SELECT status, expires_at FROM lease.renew('op', 'bob', 1, '1 hour');
SELECT status, expires_at FROM lease.renew('op', 'bob', 7, '1 hour');
SELECT status, expires_at FROM lease.renew('op', 'ann', 0, '1 hour');
SELECT status, expires_at FROM lease.renew('op', 'ann', 2, '1 hour');
SELECT status, expires_at FROM lease.renew('op', 'ann', -1, '1 hour');
SELECT status, expires_at FROM lease.renew('op', 'ann', 9223372036854775807, '1 hour');
SELECT status, expires_at FROM lease.renew('op', 'ann', -9223372036854775808, '1 hour');
SELECT status FROM lease.release('op', 'bob', 1);
SELECT status FROM lease.release('op', 'bob', 7);
SELECT status FROM lease.release('op', 'ann', 0);
SELECT status FROM lease.release('op', 'ann', 2);
SELECT status FROM lease.release('op', 'ann', -1);
-- Unknown keys.
SELECT status, expires_at FROM lease.renew('op never seen', 'ann', 1, '1 hour');
SELECT status, expires_at FROM lease.renew('op never seen', 'ann', 0, '1 hour');
SELECT status FROM lease.release('op never seen', 'ann', 0);
-- None of this changed anything, nor made the unknown key known.
SELECT count(*) AS changed FROM
  ((TABLE before EXCEPT SELECT key, state, owner, epoch, expires_at, ttl, granted_at, renewed_at, granted_to, payload, in_flight FROM lease.leases)
   UNION ALL
   (SELECT key, state, owner, epoch, expires_at, ttl, granted_at, renewed_at, granted_to, payload, in_flight FROM lease.leases EXCEPT TABLE before)) d;
DROP TABLE before;

-- Renew: the epoch and the owner stay, the expiry moves, to either side.
SELECT r.status, r.expires_at > lease.now() + interval '90 min' AS later FROM lease.renew('op', 'ann', 1, '2 hours') r;
SELECT state_of('op');
SELECT r.status, r.expires_at < lease.now() + interval '31 min' AS sooner FROM lease.renew('op', 'ann', 1, '30 min') r;
SELECT state_of('op');
SELECT r.expires_at = i.expires_at AS same FROM lease.renew('op', 'ann', 1, '1 hour') r, LATERAL lease.inspect('op') i;

-- A ttl counts from the call, to the microsecond, whatever the transaction's start.
BEGIN;
SELECT lease.now() AS begun \gset
SELECT pg_sleep(0.02);
SELECT lease.now() AS t0 \gset
SELECT expires_at AS granted FROM lease.acquire('op exact', 'ann', '17.000003 s') \gset
SELECT lease.now() AS t1 \gset
SELECT expires_at AS renewed FROM lease.renew('op exact', 'ann', 1, '90061.5 s') \gset
SELECT lease.now() AS t2 \gset
SELECT :'granted'::timestamptz - interval '17.000003 s' BETWEEN :'t0' AND :'t1' AS granted,
       :'renewed'::timestamptz - interval '90061.5 s' BETWEEN :'t1' AND :'t2' AS renewed,
       :'t0'::timestamptz - :'begun'::timestamptz >= interval '0.02 s' AS not_frozen;
COMMIT;

-- The holder acquires again: granted with a new epoch, and the old epoch is fenced off.
SELECT acquired, epoch FROM lease.acquire('op', 'ann', '1 hour');
SELECT status FROM lease.renew('op', 'ann', 1, '1 hour');
SELECT status FROM lease.release('op', 'ann', 1);
SELECT state_of('op');
SELECT status FROM lease.renew('op', 'ann', 2, '1 hour');

-- Release: unowned, the epoch one higher.
SELECT status FROM lease.release('op', 'ann', 2);
SELECT state, owner, epoch, expires_at, remaining, payload, in_flight FROM lease.inspect('op');
-- A free key: nobody is its owner, also not the one who was, with whatever epoch.
SELECT status, expires_at FROM lease.renew('op', 'ann', 2, '1 hour');
SELECT status, expires_at FROM lease.renew('op', 'ann', 3, '1 hour');
SELECT status FROM lease.release('op', 'ann', 2);
SELECT status FROM lease.release('op', 'ann', 3);
SELECT state_of('op');
-- The next holder.
SELECT acquired, epoch FROM lease.acquire('op', 'bob', '1 hour');
SELECT status FROM lease.renew('op', 'ann', 2, '1 hour');
SELECT status FROM lease.release('op', 'ann', 4);
SELECT status FROM lease.release('op', 'bob', 4);
SELECT state_of('op');

-- Lapse: a holder that stops renewing.
SELECT acquired, epoch FROM lease.acquire('op lapsed 1', 'ann', '1 s', NULL, '"here"');
SELECT acquired, epoch FROM lease.acquire('op lapsed 2', 'ann', '1 s');
SELECT acquired, epoch FROM lease.acquire('op lapsed 3', 'ann', '1 s');
SELECT acquired, epoch FROM lease.acquire('op shortened', 'ann', '1 hour');
SELECT status FROM lease.renew('op shortened', 'ann', 1, '1 s');
SELECT acquired, epoch FROM lease.acquire('op kept alive', 'ann', '1 s');
SELECT status FROM lease.renew('op kept alive', 'ann', 1, '1 hour');
SELECT pg_sleep(1);
SELECT state, owner, epoch, expires_at, remaining, payload, in_flight FROM lease.inspect('op lapsed 1');
SELECT state_of('op shortened'), state_of('op kept alive');
-- The one who held it is told so, whatever epoch it shows; anybody else is not its owner.
SELECT status, expires_at FROM lease.renew('op lapsed 1', 'ann', 1, '1 hour');
SELECT status, expires_at FROM lease.renew('op lapsed 1', 'ann', 5, '1 hour');
SELECT status, expires_at FROM lease.renew('op lapsed 1', 'bob', 1, '1 hour');
SELECT status FROM lease.release('op lapsed 1', 'ann', 1);
SELECT status FROM lease.release('op lapsed 1', 'ann', 5);
SELECT status FROM lease.release('op lapsed 1', 'bob', 1);
SELECT state_of('op lapsed 1');
SELECT state, owner, epoch, expires_at, remaining, payload FROM lease.leases WHERE key = 'op lapsed 1';
-- Taken over at the first call, with a greater epoch; the old holder is out for good.
SELECT acquired, epoch FROM lease.acquire('op lapsed 1', 'bob', '1 hour');
SELECT status FROM lease.renew('op lapsed 1', 'ann', 1, '1 hour');
SELECT status FROM lease.renew('op lapsed 1', 'ann', 2, '1 hour');
SELECT status FROM lease.release('op lapsed 1', 'ann', 1);
SELECT acquired, epoch FROM lease.acquire('op lapsed 1', 'ann', '1 hour');
SELECT state_of('op lapsed 1');
-- Taken again by the one who lost it: its old term stays dead.
SELECT acquired, epoch FROM lease.acquire('op lapsed 2', 'ann', '1 hour');
SELECT status FROM lease.renew('op lapsed 2', 'ann', 1, '1 hour');
SELECT status FROM lease.release('op lapsed 2', 'ann', 1);
SELECT status FROM lease.renew('op lapsed 2', 'ann', 2, '1 hour');
SELECT state_of('op lapsed 2');
-- Not touched since: the same answers later.
SELECT status FROM lease.renew('op lapsed 3', 'ann', 1, '1 hour');
SELECT state_of('op lapsed 3');

-- Called once per column, every call a new grant: what FROM is for.
SELECT (lease.acquire('op columns', 'ann', '1 hour')).acquired, (lease.acquire('op columns', 'ann', '1 hour')).epoch;
SELECT state_of('op columns');

-- Named arguments and defaults.
SELECT acquired, epoch FROM lease.acquire(key => 'op named', owner => 'ann', ttl => '1 hour');
SELECT acquired, epoch FROM lease.acquire(owner => 'ann', key => 'op named', payload => '[]', ttl => '1 hour', wait => NULL);
SELECT status FROM lease.renew(ttl => '1 hour', epoch => 2, owner => 'ann', key => 'op named');
SELECT status FROM lease.release(epoch => 2, owner => 'ann', key => 'op named');
SELECT state, epoch FROM lease.inspect(key => 'op named');

-- Keys are independent: everything done to one leaves the others as they were.
SELECT acquired FROM lease.acquire('op aside', 'ann', '1 hour', NULL, '1');
CREATE TEMP TABLE aside AS SELECT key, state, owner, epoch, expires_at, ttl, granted_at, renewed_at, granted_to, payload, in_flight FROM lease.leases WHERE key = 'op aside';
SELECT acquired FROM lease.acquire('op asidf', 'ann', '1 hour', NULL, '2');
SELECT acquired FROM lease.acquire('op asid', 'ann', '1 hour');
SELECT status FROM lease.renew('op asidf', 'ann', 1, '1 min');
SELECT status FROM lease.release('op asidf', 'ann', 1);
SELECT acquired FROM lease.acquire('op asidf', 'bob', '1 hour');
SELECT status FROM lease.renew('op asidf', 'ann', 1, '1 min');
SELECT count(*) AS as_before FROM (TABLE aside INTERSECT
  SELECT key, state, owner, epoch, expires_at, ttl, granted_at, renewed_at, granted_to, payload, in_flight FROM lease.leases) d;
