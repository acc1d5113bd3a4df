--
-- The payload: up to 1024 bytes as text, kept by renewals, gone with the ownership, replaced by the next grant.
-- Proves: I8 (a renewal keeps what the grant said), I6
--
\pset null '(null)'
SELECT acquired FROM lease.acquire('pay', 'ann', '1 hour', NULL, '{"port": 1, "host": "a"}');
SELECT payload FROM lease.inspect('pay');
SELECT status FROM lease.renew('pay', 'ann', 1, '1 hour');
SELECT payload FROM lease.inspect('pay');
SELECT payload FROM lease.leases WHERE key = 'pay';
-- A denied acquire leaves it.
SELECT acquired FROM lease.acquire('pay', 'bob', '1 hour', NULL, '{"port": 2}');
SELECT payload FROM lease.inspect('pay');
-- The next grant replaces it, also with none, also the same holder's.
SELECT acquired FROM lease.acquire('pay', 'ann', '1 hour', NULL, '[2]');
SELECT payload FROM lease.inspect('pay');
SELECT acquired FROM lease.acquire('pay', 'ann', '1 hour');
SELECT payload FROM lease.inspect('pay');
SELECT acquired FROM lease.acquire('pay', 'ann', '1 hour', payload => '"x"');
SELECT status FROM lease.release('pay', 'ann', 4);
SELECT payload FROM lease.inspect('pay');
SELECT payload FROM lease.leases WHERE key = 'pay';
SELECT acquired FROM lease.acquire('pay', 'bob', '1 hour');
SELECT payload FROM lease.inspect('pay');

-- Pending: own transaction sees it, a rollback takes it back.
BEGIN;
SELECT acquired FROM lease.acquire('pay', 'bob', '1 hour', NULL, '1');
SAVEPOINT s;
SELECT acquired FROM lease.acquire('pay', 'bob', '1 hour', NULL, '2');
SELECT payload FROM lease.inspect('pay');
ROLLBACK TO s;
SELECT payload FROM lease.inspect('pay');
SELECT status FROM lease.renew('pay', 'bob', 7, '1 hour');
COMMIT;
SELECT epoch, payload FROM lease.inspect('pay');

-- Every kind of value; JSON's null is a value.
SELECT value, a.acquired, i.payload, i.payload IS NULL AS none
  FROM (VALUES (1, 'null'::jsonb), (2, 'true'), (3, '""'), (4, '"\"\\\n"'), (5, '0'), (6, '-1.50e3'), (7, '[]'), (8, '{}'), (9, '[[[[{"a": [null]}]]]]'), (10, NULL)) v(n, value),
       LATERAL lease.acquire('pay kind ' || n, 'ann', '1 hour', NULL, value) a, LATERAL lease.inspect('pay kind ' || n || left('', a.epoch::int)) i
 ORDER BY n;

-- The limit counts the bytes of the text form, spaces and escapes included.
SELECT what, octet_length(value::text) AS bytes, outcome(format($$SELECT lease.acquire(%L, 'ann', '1 hour', NULL, %L)$$, 'pay size ' || n, value), 'payload')
  FROM (VALUES
    (1, 'string', to_jsonb(repeat('x', 1022))),
    (2, 'string', to_jsonb(repeat('x', 1023))),
    (3, 'object', jsonb_build_object('a', repeat('x', 1015))),
    (4, 'object', jsonb_build_object('a', repeat('x', 1016))),
    (5, 'four bytes', to_jsonb(repeat('😀', 255) || 'xx')),
    (6, 'four bytes', to_jsonb(repeat('😀', 255) || 'xxx')),
    (7, 'escapes', to_jsonb(repeat('"', 511))),
    (8, 'escapes', to_jsonb(repeat('"', 512))),
    (9, 'far over', to_jsonb(repeat('x', 100000)))) v(n, what, value)
 ORDER BY n;
SELECT n, i.state, octet_length(i.payload::text) AS bytes FROM generate_series(1, 9) n, LATERAL lease.inspect('pay size ' || n) i WHERE i.state = 'held' ORDER BY n;
-- More text than PostgreSQL can make of it.
SELECT outcome($$SELECT lease.acquire('pay huge', 'ann', '1 hour', NULL, (SELECT jsonb_agg(n) FROM (SELECT '1e131071'::jsonb) v(n), generate_series(1, 9000)))$$, 'payload');

-- Gone with a lapse.
SELECT acquired FROM lease.acquire('pay lapse', 'ann', '1 s', NULL, '"still here"');
SELECT pg_sleep(1);
SELECT state, payload FROM lease.inspect('pay lapse');
SELECT state, payload FROM lease.leases WHERE key = 'pay lapse';
