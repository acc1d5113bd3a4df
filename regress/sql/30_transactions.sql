--
-- Operations inside transactions and savepoints: pending until the commit, undone with what they were done in.
-- Proves: I2, I6, I8, I10, I11, failure row "Operation transaction aborts", failure row "TTL shorter than operation latency"
--
\set VERBOSITY sqlstate

-- The whole life of a lease in one transaction; each call sees the ones before.
BEGIN;
SELECT acquired, epoch FROM lease.acquire('tx', 'ann', '1 hour');
SELECT state, owner, epoch, in_flight FROM lease.inspect('tx');
SELECT state, owner, epoch, in_flight FROM lease.leases WHERE key = 'tx';
SELECT acquired FROM lease.acquire('tx', 'bob', '1 hour');
SELECT status FROM lease.renew('tx', 'bob', 1, '1 hour');
SELECT status FROM lease.renew('tx', 'ann', 2, '1 hour');
SELECT status FROM lease.renew('tx', 'ann', 1, '2 hours');
SELECT acquired, epoch FROM lease.acquire('tx', 'ann', '1 hour');
SELECT status FROM lease.renew('tx', 'ann', 1, '1 hour');
SELECT status FROM lease.release('tx', 'ann', 2);
SELECT status FROM lease.release('tx', 'ann', 2);
SELECT state_of('tx');
SELECT acquired, epoch FROM lease.acquire('tx', 'bob', '1 hour');
COMMIT;
SELECT state_of('tx');

-- Rolled back: as if it had not been, on a key there was and on a new one.
BEGIN;
SELECT status FROM lease.release('tx', 'bob', 4);
SELECT acquired FROM lease.acquire('tx', 'ann', '1 hour');
SELECT acquired FROM lease.acquire('tx new', 'ann', '1 hour');
ROLLBACK;
SELECT state_of('tx'), state_of('tx new');
SELECT status FROM lease.renew('tx', 'bob', 4, '1 hour');
-- ... by an error
BEGIN;
SELECT status FROM lease.release('tx', 'bob', 4);
SELECT acquired FROM lease.acquire('tx new', 'ann', '1 hour');
SELECT 1 / 0;
SELECT * FROM lease.inspect('tx');
COMMIT;
SELECT state_of('tx'), state_of('tx new');
-- ... by an error in the very statement
SELECT acquired, 1 / (epoch - 1) FROM lease.acquire('tx new', 'ann', '1 hour');
SELECT state_of('tx new');
-- ... by an error at the commit that is not ours
CREATE TEMP TABLE checked (i int UNIQUE DEFERRABLE INITIALLY DEFERRED);
BEGIN;
SELECT acquired FROM lease.acquire('tx new', 'ann', '1 hour');
INSERT INTO checked VALUES (1), (1);
COMMIT;
SELECT state_of('tx new');
SELECT count(*) FROM lease.claims;

-- Savepoints.
BEGIN;
SELECT acquired FROM lease.acquire('sp 1', 'ann', '1 hour');
SAVEPOINT a;
SELECT acquired FROM lease.acquire('sp 2', 'ann', '1 hour');
SELECT status FROM lease.release('sp 1', 'ann', 1);
SAVEPOINT b;
SELECT acquired, epoch FROM lease.acquire('sp 1', 'bob', '1 hour');
SELECT acquired, epoch FROM lease.acquire('sp 2', 'ann', '1 hour');
SELECT acquired FROM lease.acquire('sp 3', 'ann', '1 hour');
SELECT state_of('sp 1'), state_of('sp 2'), state_of('sp 3');
ROLLBACK TO b;
SELECT state_of('sp 1'), state_of('sp 2'), state_of('sp 3');
RELEASE b;
SELECT state_of('sp 1'), state_of('sp 2'), state_of('sp 3');
ROLLBACK TO a;
SELECT state_of('sp 1'), state_of('sp 2'), state_of('sp 3');
SELECT count(*) FROM lease.claims;
SELECT acquired, epoch FROM lease.acquire('sp 2', 'bob', '1 hour');
RELEASE a;
COMMIT;
SELECT state_of('sp 1'), state_of('sp 2'), state_of('sp 3');

-- Released savepoints pass their changes on to what is around them.
BEGIN;
SAVEPOINT a;
SAVEPOINT b;
SELECT acquired FROM lease.acquire('sp 4', 'ann', '1 hour');
RELEASE b;
SELECT status FROM lease.renew('sp 4', 'ann', 1, '2 hours');
RELEASE a;
SAVEPOINT c;
SELECT status FROM lease.release('sp 4', 'ann', 1);
ROLLBACK TO c;
SELECT state_of('sp 4');
COMMIT;
SELECT state_of('sp 4');
BEGIN;
SAVEPOINT a;
SAVEPOINT b;
SELECT status FROM lease.release('sp 4', 'ann', 1);
RELEASE b;
ROLLBACK TO a;
SELECT state_of('sp 4');
COMMIT;
SELECT state_of('sp 4');

-- An error of ours inside a savepoint undoes no more than that.
BEGIN;
SELECT acquired FROM lease.acquire('sp 5', 'ann', '1 hour');
SAVEPOINT a;
SELECT acquired FROM lease.acquire('sp 6', 'ann', '1 hour');
SELECT * FROM lease.renew('sp 5', 'ann', NULL, '1 hour');
ROLLBACK TO a;
SELECT state_of('sp 5'), state_of('sp 6');
COMMIT;
SELECT state_of('sp 5'), state_of('sp 6');

-- Many savepoints, deep and wide.
DO $$
BEGIN
  FOR i IN 1..300 LOOP
    BEGIN
      PERFORM lease.acquire('sp many', 'ann', '1 hour'), lease.acquire('sp many ' || i, 'ann', '1 hour');
      IF i % 3 = 0 THEN RAISE EXCEPTION USING ERRCODE = 'ZZ000'; END IF;
    EXCEPTION WHEN SQLSTATE 'ZZ000' THEN NULL;
    END;
  END LOOP;
END $$;
SELECT state, owner, epoch >= 200 AS epoch FROM lease.inspect('sp many');
SELECT state, count(*) FROM lease.leases WHERE key LIKE 'sp many %' GROUP BY state;
CREATE FUNCTION acquire_deep(depth int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
  IF depth = 0 THEN RETURN 0; END IF;
  PERFORM lease.acquire('sp deep', 'ann', '1 hour');
  RETURN 1 + acquire_deep(depth - 1);
EXCEPTION WHEN OTHERS THEN RAISE;
END $$;
SELECT acquire_deep(50);
SELECT state_of('sp deep');

-- A transaction whose own change passed its deadline cannot commit: LE001. Nothing of it is done.
CREATE TABLE tx_work (i int);
BEGIN;
INSERT INTO tx_work VALUES (1);
SELECT acquired FROM lease.acquire('late', 'ann', '20 ms');
SELECT acquired FROM lease.acquire('late other', 'ann', '1 hour');
SELECT pg_sleep(0.02);
SELECT state_of('late');
COMMIT;
SELECT state_of('late'), state_of('late other'), count(*) FROM tx_work;
-- the shortest ttl there is, in one statement
SELECT acquired FROM lease.acquire('late', 'ann', '1 microsecond'), pg_sleep(0.001);
SELECT state_of('late');
-- a renew: back to the expiry there was
SELECT acquired FROM lease.acquire('late', 'ann', '1 hour');
BEGIN;
SELECT status FROM lease.renew('late', 'ann', 1, '20 ms');
SELECT pg_sleep(0.02);
SELECT status FROM lease.renew('late', 'ann', 1, '1 hour');
COMMIT;
SELECT state_of('late'), remaining > '50 min' AS unchanged FROM lease.inspect('late');
-- undone with its savepoint, it does not count
BEGIN;
SAVEPOINT a;
SELECT status FROM lease.renew('late', 'ann', 1, '20 ms');
ROLLBACK TO a;
SELECT acquired FROM lease.acquire('late savepoint', 'ann', '20 ms');
ROLLBACK TO a;
SELECT pg_sleep(0.02);
SELECT status FROM lease.renew('late', 'ann', 1, '1 hour');
COMMIT;
SELECT state_of('late'), state_of('late savepoint');
-- the last word counts: a deadline moved on, or the lease given back, in time
BEGIN;
SELECT acquired FROM lease.acquire('late 2', 'ann', '500 ms');
SELECT status FROM lease.renew('late 2', 'ann', 1, '1 hour');
SELECT pg_sleep(0.5);
COMMIT;
SELECT state_of('late 2');
-- a release: its deadline is the expiry of what it releases
SELECT acquired FROM lease.acquire('late 3', 'ann', '1 s');
BEGIN;
SELECT status FROM lease.release('late 3', 'ann', 1);
SELECT pg_sleep(1);
COMMIT;
SELECT state_of('late 3');
-- a rollback is a rollback
BEGIN;
SELECT acquired FROM lease.acquire('late 4', 'ann', '20 ms');
SELECT pg_sleep(0.02);
ROLLBACK;
SELECT state_of('late 4');
-- the session goes on
SELECT count(*) FROM lease.claims;
SELECT acquired, epoch FROM lease.acquire('late 4', 'ann', '1 hour');

-- AND CHAIN.
BEGIN;
SELECT acquired FROM lease.acquire('chain', 'ann', '1 hour');
COMMIT AND CHAIN;
SELECT state_of('chain');
SELECT status FROM lease.release('chain', 'ann', 1);
ROLLBACK AND CHAIN;
SELECT status FROM lease.renew('chain', 'ann', 1, '1 hour');
COMMIT;
SELECT state_of('chain');

-- Several statements in one message are one transaction.
SELECT acquired FROM lease.acquire('message', 'ann', '1 hour') \; SELECT 1 / 0;
SELECT state_of('message');
SELECT acquired FROM lease.acquire('message', 'ann', '1 hour') \; SELECT status FROM lease.release('message', 'ann', 1);
SELECT state_of('message');

-- Read-only transactions look and do nothing else, not even be denied.
BEGIN READ ONLY;
SELECT state_of('chain');
SELECT state FROM lease.leases WHERE key = 'chain';
SELECT count(*) FROM lease.claims;
SELECT count(*) FROM lease.clock;
SELECT outcome_only($$SELECT lease.acquire('chain', 'bob', '1 s')$$) AS denied, outcome_only($$SELECT lease.acquire('read only', 'bob', '1 s')$$) AS acquire,
       outcome_only($$SELECT lease.renew('chain', 'ann', 1, '1 s')$$) AS renew, outcome_only($$SELECT lease.release('chain', 'ann', 1)$$) AS release;
COMMIT;
SET default_transaction_read_only = on;
SELECT acquired FROM lease.acquire('read only', 'ann', '1 s');
RESET default_transaction_read_only;
SELECT state_of('read only');

-- A prepared transaction would hold its keys for ever: refused, and the transaction is over.
BEGIN;
SELECT acquired FROM lease.acquire('two phases', 'ann', '1 hour');
PREPARE TRANSACTION 'lease';
SELECT state_of('two phases');
BEGIN;
SELECT status FROM lease.renew('chain', 'ann', 1, '1 hour');
PREPARE TRANSACTION 'lease';
BEGIN;
SELECT status FROM lease.release('chain', 'ann', 1);
PREPARE TRANSACTION 'lease';
SELECT count(*) FROM pg_prepared_xacts;
SELECT count(*) FROM lease.claims;
SELECT state_of('chain');

-- Thousands of keys in one transaction.
BEGIN;
SELECT count(*) FILTER (WHERE acquired) AS acquired, min(epoch), max(epoch) FROM generate_series(1, 5000) i, LATERAL lease.acquire('bulk ' || i, 'ann', '1 hour');
SELECT count(*) FROM lease.claims;
COMMIT;
SELECT state, count(*) FROM lease.leases WHERE key LIKE 'bulk %' GROUP BY state;
SELECT status, count(*) FROM generate_series(1, 5000) i, LATERAL lease.release('bulk ' || i, 'ann', 1) GROUP BY status;
SELECT state, min(epoch), max(epoch), count(*) FROM lease.leases WHERE key LIKE 'bulk %' GROUP BY state;
SELECT count(*) FROM lease.claims;
