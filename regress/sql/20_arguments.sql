--
-- invalid_input: NULL is 22004, everything else out of bounds 22023; the message names the argument. Nothing is changed by it.
-- Proves: I10, I7 (no argument states the time)
--
CREATE TEMP TABLE long AS
  SELECT repeat('k', 255) AS most, repeat('k', 256) AS over,
         repeat('😀', 63) || 'abc' AS most4, repeat('😀', 64) AS over4,
         repeat('é', 127) || 'x' AS most2, repeat('é', 128) AS over2;
SELECT octet_length(most) AS most, octet_length(over) AS over, octet_length(most4) AS most4, octet_length(over4) AS over4,
       octet_length(most2) AS most2, octet_length(over2) AS over2 FROM long;

SELECT acquired, epoch FROM lease.acquire('arg', 'ann', '1 hour');
CREATE TEMP TABLE before AS SELECT key, state, owner, epoch, expires_at, payload FROM lease.leases;

-- NULL where a value is needed.
SELECT call, outcome('SELECT lease.' || call, word) FROM (VALUES
  (1, $$acquire(NULL, 'ann', '1 s')$$, 'key'),
  (2, $$acquire('arg', NULL, '1 s')$$, 'owner'),
  (3, $$acquire('arg', 'ann', NULL)$$, 'ttl'),
  (4, $$renew(NULL, 'ann', 1, '1 s')$$, 'key'),
  (5, $$renew('arg', NULL, 1, '1 s')$$, 'owner'),
  (6, $$renew('arg', 'ann', NULL, '1 s')$$, 'epoch'),
  (7, $$renew('arg', 'ann', 1, NULL)$$, 'ttl'),
  (8, $$release(NULL, 'ann', 1)$$, 'key'),
  (9, $$release('arg', NULL, 1)$$, 'owner'),
  (10, $$release('arg', 'ann', NULL)$$, 'epoch'),
  (11, $$inspect(NULL)$$, 'key'),
  (12, $$acquire('arg', 'bob', NULL)$$, 'ttl'),
  (13, $$renew('arg', 'bob', NULL, '1 s')$$, 'epoch')
) c(n, call, word) ORDER BY n;

-- Empty.
SELECT call, outcome('SELECT lease.' || call, word) FROM (VALUES
  (1, $$acquire('', 'ann', '1 s')$$, 'key'),
  (2, $$acquire('arg', '', '1 s')$$, 'owner'),
  (3, $$renew('', 'ann', 1, '1 s')$$, 'key'),
  (4, $$renew('arg', '', 1, '1 s')$$, 'owner'),
  (5, $$release('', 'ann', 1)$$, 'key'),
  (6, $$release('arg', '', 1)$$, 'owner'),
  (7, $$inspect('')$$, 'key')
) c(n, call, word) ORDER BY n;

-- More than 255 bytes; it is bytes that count.
SELECT call, which, outcome(format('SELECT lease.' || call, text), word) FROM
  (SELECT 1 AS w, 'over' AS which, over AS text FROM long UNION ALL SELECT 2, 'over4', over4 FROM long UNION ALL SELECT 3, 'over2', over2 FROM long) t,
  (VALUES
    (1, $$acquire(%L, 'ann', '1 s')$$, 'key'),
    (2, $$acquire('arg', %L, '1 s')$$, 'owner'),
    (3, $$renew(%L, 'ann', 1, '1 s')$$, 'key'),
    (4, $$renew('arg', %L, 1, '1 s')$$, 'owner'),
    (5, $$release(%L, 'ann', 1)$$, 'key'),
    (6, $$release('arg', %L, 1)$$, 'owner'),
    (7, $$inspect(%L)$$, 'key')) c(n, call, word)
 ORDER BY n, w;

-- A ttl that is not positive.
SELECT ttl, outcome(format($$SELECT lease.acquire('arg', 'ann', %L)$$, ttl), 'ttl') AS acquire,
       outcome(format($$SELECT lease.renew('arg', 'ann', 1, %L)$$, ttl), 'ttl') AS renew
  FROM (VALUES (1, '0'), (2, '-1 s'), (3, '-1 microsecond'), (4, '1 month')) t(n, ttl) ORDER BY n;

-- A payload of more than 1024 bytes as text.
SELECT outcome(format($$SELECT lease.acquire('arg', 'ann', '1 s', NULL, %L)$$, to_jsonb(repeat('x', 1023))), 'payload');

-- Bad input is said also where the answer would be a refusal anyway.
SELECT outcome($$SELECT lease.acquire('arg', 'bob', '0')$$, 'ttl'),
       outcome($$SELECT lease.renew('arg never seen', 'bob', 1, '0')$$, 'ttl');

-- A wait: zero or more, exact, or refused like a ttl. A timeout is an error of its own.
SELECT wait, outcome(format($$SELECT lease.acquire('arg', 'bob', '1 s', %L)$$, wait), word)
  FROM (VALUES (1, '-1 s', 'wait'), (2, '-1 microsecond', 'wait'), (3, '1 month', 'wait'), (4, '1 mon -29 days', 'wait'), (5, '1 day -25 hours', 'wait'),
               (6, '0', 'arg'), (7, '1 day -24 hours', 'arg'), (8, '1 ms', 'arg')) w(n, wait, word) ORDER BY n;
SELECT wait, outcome(format($$SELECT lease.acquire(%L, 'bob', '1 hour', %L)$$, 'arg wait ' || n, wait))
  FROM (VALUES (1, '0'), (2, '1 s'), (3, '100000 days')) w(n, wait) ORDER BY n;

-- An error of ours ends statement and transaction as any error does.
\set VERBOSITY sqlstate
SELECT * FROM lease.acquire(NULL, 'ann', '1 s');
BEGIN;
SELECT acquired FROM lease.acquire('arg rolled back', 'ann', '1 s');
SELECT * FROM lease.inspect('');
SELECT 1;
COMMIT;
SELECT state_of('arg rolled back');

-- Exactly 255 bytes work everywhere.
SELECT which, g.acquired, g.epoch, octet_length(i.owner) AS owner, r.status AS renewed, l.status AS released, s.state, s.epoch
  FROM (SELECT 1 AS w, 'most' AS which, most AS text FROM long UNION ALL SELECT 2, 'most4', most4 FROM long UNION ALL SELECT 3, 'most2', most2 FROM long) t,
       LATERAL lease.acquire(text, text, '1 hour') g, LATERAL lease.inspect(left(text, length(text) + 0 * g.epoch::int)) i,
       LATERAL lease.renew(text, i.owner, g.epoch, '1 hour') r, LATERAL lease.release(text, i.owner, g.epoch + 0 * length(r.status)) l,
       LATERAL lease.inspect(left(text, length(text) + 0 * length(l.status))) s
 ORDER BY w;
-- One byte less makes another key.
SELECT state_of(left(most, 254)) FROM long;

-- Nothing but what was granted has changed.
SELECT count(*) AS changed FROM (TABLE before EXCEPT SELECT key, state, owner, epoch, expires_at, payload FROM lease.leases) d;
