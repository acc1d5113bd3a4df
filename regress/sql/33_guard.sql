--
-- lease.guard: judged at the call and again at the COMMIT, in every place where a transaction can call it.
-- Proves: I3 (fencing effectiveness), I10 (a refused guard changes nothing), A1, failure row "TTL shorter than operation latency"
--
\set VERBOSITY sqlstate
CREATE TABLE guarded (n int);
SELECT epoch FROM lease.acquire('g', 'ann', '1 hour');

-- At the call: order of the checks, and what it returns.
BEGIN;
SELECT lease.guard('g', 'ann', 1) = (SELECT expires_at FROM lease.inspect('g')) AS expires_at;
INSERT INTO guarded VALUES (1);
COMMIT;
SELECT outcome($$SELECT lease.guard('g', 'ann', 2)$$, 'epoch');
SELECT outcome($$SELECT lease.guard('g', 'ann', 0)$$, 'epoch');
SELECT outcome($$SELECT lease.guard('g', 'bob', 1)$$, 'bob');
SELECT outcome($$SELECT lease.guard('g never seen', 'ann', 1)$$, 'ann');
SELECT outcome($$SELECT lease.guard('g never seen', 'ann', 0)$$, 'ann');
SELECT outcome($$SELECT lease.guard(NULL, 'ann', 1)$$, 'key');
SELECT outcome($$SELECT lease.guard('', 'ann', 1)$$, 'key');
SELECT outcome($$SELECT lease.guard(repeat('x', 256), 'ann', 1)$$, 'key');
SELECT outcome($$SELECT lease.guard('g', NULL, 1)$$, 'owner');
SELECT outcome($$SELECT lease.guard('g', 'ann', NULL)$$, 'epoch');

-- Lapsed: told so, until somebody else has had it.
SELECT epoch FROM lease.acquire('g short', 'ann', '1 s');
SELECT pg_sleep(1);
SELECT outcome($$SELECT lease.guard('g short', 'ann', 1)$$, 'lapsed');
SELECT outcome($$SELECT lease.guard('g short', 'ann', 2)$$, 'lapsed');
SELECT epoch FROM lease.acquire('g short', 'bob', '1 hour');
SELECT outcome($$SELECT lease.guard('g short', 'ann', 1)$$, 'ann');
SELECT status FROM lease.release('g short', 'bob', 2);
SELECT outcome($$SELECT lease.guard('g short', 'bob', 2)$$, 'bob');
SELECT outcome($$SELECT lease.guard('g short', 'bob', 3)$$, 'bob');

-- At the COMMIT: the lease ended meanwhile, and nothing of the transaction is done.
SELECT epoch FROM lease.acquire('g short', 'ann', '1 s');
BEGIN;
SELECT lease.guard('g short', 'ann', 4) IS NOT NULL AS guarded;
INSERT INTO guarded VALUES (2);
SELECT pg_sleep(1);
COMMIT;
SELECT n FROM guarded;

-- Ended and had by another (the session's own, in a transaction before).
SELECT outcome($$SELECT lease.guard('g short', 'ann', 4)$$, 'lapsed');

-- Own changes never stand in the way of own guards.
BEGIN;
SELECT lease.guard('g', 'ann', 1) IS NOT NULL AS guarded;
SELECT status FROM lease.release('g', 'ann', 1);
SELECT outcome($$SELECT lease.guard('g', 'ann', 1)$$, 'ann');
INSERT INTO guarded VALUES (3);
COMMIT;
SELECT state_of('g'), n FROM guarded WHERE n = 3;

-- On an own acquire that is not committed yet.
BEGIN;
SELECT epoch FROM lease.acquire('g', 'ann', '1 hour');
SELECT lease.guard('g', 'ann', 3) IS NOT NULL AS guarded;
SELECT outcome($$SELECT lease.guard('g', 'ann', 2)$$, 'epoch');
INSERT INTO guarded VALUES (4);
COMMIT;
SELECT state_of('g'), n FROM guarded WHERE n = 4;
BEGIN;
SELECT epoch FROM lease.acquire('g own', 'ann', '1 s');
SELECT lease.guard('g own', 'ann', 1) IS NOT NULL AS guarded;
SELECT pg_sleep(1);
INSERT INTO guarded VALUES (5);
COMMIT;
SELECT state_of('g own'), count(*) FROM guarded WHERE n = 5;

-- On an own acquire, then released or acquired again.
BEGIN;
SELECT epoch FROM lease.acquire('g own', 'ann', '1 hour');
SELECT lease.guard('g own', 'ann', 1) IS NOT NULL AS guarded;
SELECT status FROM lease.release('g own', 'ann', 1);
INSERT INTO guarded VALUES (6);
COMMIT;
SELECT state_of('g own'), count(*) FROM guarded WHERE n = 6;
BEGIN;
SELECT epoch FROM lease.acquire('g own', 'ann', '1 hour');
SELECT lease.guard('g own', 'ann', 3) IS NOT NULL AS guarded;
SELECT epoch FROM lease.acquire('g own', 'ann', '1 hour');
SELECT lease.guard('g own', 'ann', 4) IS NOT NULL AS guarded;
COMMIT;
SELECT state_of('g own');

-- Guard and renewal in one transaction: it may take longer than the lease it began with.
SELECT epoch FROM lease.acquire('g renewed', 'ann', '1 s');
BEGIN;
SELECT lease.guard('g renewed', 'ann', 1) IS NOT NULL AS guarded;
SELECT status FROM lease.renew('g renewed', 'ann', 1, '1 hour');
SELECT pg_sleep(1);
COMMIT;
SELECT state_of('g renewed');

-- Savepoints: a guard goes with the savepoint it was made in.
SELECT epoch FROM lease.acquire('g brief', 'ann', '1 s');
BEGIN;
SAVEPOINT s;
SELECT lease.guard('g brief', 'ann', 1) IS NOT NULL AS guarded;
ROLLBACK TO s;
SELECT pg_sleep(1);
COMMIT;
SELECT epoch FROM lease.acquire('g brief', 'ann', '1 s');
BEGIN;
SAVEPOINT s;
SELECT lease.guard('g brief', 'ann', 2) IS NOT NULL AS guarded;
RELEASE s;
SELECT pg_sleep(1);
COMMIT;
SELECT epoch FROM lease.acquire('g brief', 'ann', '1 s');
BEGIN;
SELECT lease.guard('g brief', 'ann', 3) IS NOT NULL AS guarded;
SAVEPOINT s;
SELECT lease.guard('g brief', 'ann', 3) IS NOT NULL AS guarded;
ROLLBACK TO s;
SELECT pg_sleep(1);
COMMIT;
SELECT epoch FROM lease.acquire('g brief', 'ann', '1 s');
BEGIN;
SAVEPOINT s;
SELECT epoch FROM lease.acquire('g nested', 'ann', '1 hour');
SELECT lease.guard('g nested', 'ann', 1) IS NOT NULL AS guarded;
SAVEPOINT t;
SELECT lease.guard('g brief', 'ann', 4) IS NOT NULL AS guarded;
RELEASE t;
ROLLBACK TO s;
SELECT outcome($$SELECT lease.guard('g nested', 'ann', 1)$$, 'ann');
SELECT pg_sleep(1);
COMMIT;

-- PL/pgSQL: a refusal is caught like any error; what the block did goes with it.
DO $$
BEGIN
  BEGIN
    PERFORM lease.guard('g', 'ann', 3);
    INSERT INTO guarded VALUES (7);
    PERFORM lease.guard('g', 'ann', 99);
  EXCEPTION WHEN SQLSTATE 'LE002' THEN
    RAISE INFO 'caught %', SQLSTATE;
  END;
  PERFORM lease.guard('g', 'ann', 3);
  INSERT INTO guarded VALUES (8);
END $$;
SELECT n FROM guarded WHERE n IN (7, 8);

-- A procedure: each COMMIT is judged, and ends its guards.
CREATE PROCEDURE guard_steps() LANGUAGE plpgsql AS $$
BEGIN
  PERFORM lease.guard('g', 'ann', 3);
  INSERT INTO guarded VALUES (9);
  COMMIT;
  PERFORM status FROM lease.release('g', 'ann', 3);
  COMMIT;
  INSERT INTO guarded VALUES (10);
  COMMIT;
  PERFORM epoch FROM lease.acquire('g', 'ann', '1 s');
  COMMIT;
  PERFORM lease.guard('g', 'ann', 5);
  INSERT INTO guarded VALUES (11);
  PERFORM pg_sleep(1);
  COMMIT;
  INSERT INTO guarded VALUES (12);
END $$;
CALL guard_steps();
SELECT n FROM guarded WHERE n BETWEEN 9 AND 12 ORDER BY n;

-- A deferred trigger runs before the commit is judged, and may guard.
SELECT epoch FROM lease.acquire('g', 'ann', '1 hour');
CREATE FUNCTION guard_later() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM lease.guard('g', 'ann', NEW.n);
  RETURN NULL;
END $$;
CREATE TABLE later (n int);
CREATE CONSTRAINT TRIGGER later AFTER INSERT ON later DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION guard_later();
INSERT INTO later VALUES (6);
INSERT INTO later VALUES (5);
BEGIN;
SELECT lease.guard('g', 'ann', 6) IS NOT NULL AS guarded;
INSERT INTO later VALUES (6);
SELECT status FROM lease.release('g', 'ann', 6);
COMMIT;
SELECT n FROM later;

-- REPEATABLE READ and SERIALIZABLE: within one term; a snapshot from before it is of no use.
SELECT epoch FROM lease.acquire('g', 'ann', '1 hour');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT lease.guard('g', 'ann', 7) IS NOT NULL AS guarded;
INSERT INTO guarded VALUES (20);
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT lease.guard('g', 'ann', 7) IS NOT NULL AS guarded;
SELECT epoch FROM lease.acquire('g', 'ann', '1 hour');
SELECT lease.guard('g', 'ann', 8) IS NOT NULL AS guarded;
INSERT INTO guarded VALUES (21);
COMMIT;
SELECT n FROM guarded WHERE n BETWEEN 20 AND 29 ORDER BY n;

-- READ ONLY: judged at the call; nothing to protect at the commit.
SELECT epoch FROM lease.acquire('g brief', 'ann', '1 s');
BEGIN READ ONLY;
SELECT lease.guard('g brief', 'ann', 5) IS NOT NULL AS guarded;
SELECT pg_sleep(1);
COMMIT;
BEGIN READ ONLY;
SELECT lease.guard('g brief', 'ann', 5);
ROLLBACK;
BEGIN READ ONLY;
SELECT lease.guard('g', 'bob', 7);
ROLLBACK;
BEGIN READ ONLY;
SELECT lease.guard('g', 'ann', 6);
ROLLBACK;
-- an own change from before the transaction became READ ONLY counts
BEGIN;
SELECT epoch FROM lease.acquire('g', 'ann', '1 hour');
SET TRANSACTION READ ONLY;
SELECT lease.guard('g', 'ann', 9) IS NOT NULL AS guarded;
SELECT outcome($$SELECT lease.guard('g', 'ann', 7)$$, 'epoch');
COMMIT;

-- Guarded, then READ ONLY: still judged at the commit.
SELECT epoch FROM lease.acquire('g brief', 'ann', '1 s');
BEGIN;
SELECT lease.guard('g brief', 'ann', 6) IS NOT NULL AS guarded;
SET TRANSACTION READ ONLY;
SELECT pg_sleep(1);
COMMIT;

-- Read-only for a while only: the transaction may write after, so it is judged. (By a function's setting: 36_guard_setting.)
SELECT epoch FROM lease.acquire('g brief', 'ann', '1 s');
BEGIN;
SAVEPOINT s;
SET TRANSACTION READ ONLY;
SELECT lease.guard('g brief', 'ann', 7) IS NOT NULL AS guarded;
RELEASE s;
INSERT INTO guarded VALUES (30);
SELECT pg_sleep(1);
COMMIT;
SELECT count(*) FROM guarded WHERE n = 30;
-- read-only throughout, in a savepoint or not: at the call only
SELECT epoch FROM lease.acquire('g brief', 'ann', '1 s');
BEGIN READ ONLY;
SAVEPOINT s;
SELECT lease.guard('g brief', 'ann', 8) IS NOT NULL AS guarded;
RELEASE s;
SELECT pg_sleep(1);
COMMIT;

-- PREPARE would leave the guard to nobody.
BEGIN;
SELECT lease.guard('g', 'ann', 9) IS NOT NULL AS guarded;
PREPARE TRANSACTION 'guarded';
SELECT count(*) FROM pg_prepared_xacts;
BEGIN READ ONLY;
SELECT lease.guard('g', 'ann', 9) IS NOT NULL AS guarded;
PREPARE TRANSACTION 'read only';

-- Outside a block: a transaction of its own. Many guards in one transaction.
SELECT lease.guard('g', 'ann', 9) IS NOT NULL AS guarded;
SELECT count(*) FROM generate_series(1, 300) i, LATERAL lease.acquire('g many ' || i, 'ann', '1 hour') a WHERE acquired;
BEGIN;
SELECT count(lease.guard('g many ' || i, 'ann', 1)) FROM generate_series(1, 300) i;
COMMIT;
BEGIN;
SELECT count(lease.guard('g many ' || i, 'ann', 1)) FROM generate_series(1, 300) i;
SELECT status FROM lease.release('g many 150', 'ann', 1);
COMMIT;
SELECT state_of('g many 150');

-- Dropped in the same transaction: an error of its own at the commit.
BEGIN;
SELECT lease.guard('g', 'ann', 9) IS NOT NULL AS guarded;
DROP EXTENSION pg_lease CASCADE;
COMMIT;
SELECT state_of('g');

DROP PROCEDURE guard_steps;
DROP TABLE later, guarded;
DROP FUNCTION guard_later;
