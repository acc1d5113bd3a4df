--
-- Calls from PL/pgSQL, prepared statements, procedures that commit, cursors, triggers.
-- Proves: I2, I6, failure row "Operation transaction aborts", failure row "TTL shorter than operation latency"
--
\set VERBOSITY sqlstate

-- An exception block undoes what was done in it.
CREATE FUNCTION in_block(fail boolean) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  PERFORM lease.acquire('block outer', 'ann', '1 hour');
  BEGIN
    PERFORM lease.acquire('block inner', 'ann', '1 hour');
    PERFORM lease.release('block outer', 'ann', 1);
    IF fail THEN RAISE division_by_zero; END IF;
  EXCEPTION WHEN division_by_zero THEN
    RETURN state_of('block outer') || ', ' || state_of('block inner');
  END;
  RETURN state_of('block outer') || ', ' || state_of('block inner');
END $$;
SELECT in_block(true);
SELECT state_of('block outer'), state_of('block inner');
BEGIN;
SELECT in_block(false);
ROLLBACK;
SELECT state_of('block outer'), state_of('block inner');

-- Errors of ours are caught like others, by name and by OTHERS.
\set VERBOSITY terse
DO $$
BEGIN
  BEGIN
    PERFORM lease.acquire('', 'ann', '1 hour');
  EXCEPTION WHEN invalid_parameter_value THEN RAISE NOTICE 'invalid_parameter_value';
  END;
  BEGIN
    PERFORM lease.release('k', 'ann', NULL);
  EXCEPTION WHEN null_value_not_allowed THEN RAISE NOTICE 'null_value_not_allowed';
  END;
  BEGIN
    PERFORM lease.inspect(NULL);
  EXCEPTION WHEN OTHERS THEN RAISE NOTICE '%', SQLSTATE;
  END;
END $$;
\set VERBOSITY sqlstate

-- Prepared statements, beyond the point where a generic plan is taken.
PREPARE take (text, text, interval) AS SELECT acquired, epoch FROM lease.acquire($1, $2, $3);
PREPARE keep (text, text, bigint, interval) AS SELECT status FROM lease.renew($1, $2, $3, $4);
EXECUTE take('prepared', 'ann', '1 hour');
EXECUTE take('prepared', 'ann', '1 hour');
EXECUTE take('prepared', 'ann', '1 hour');
EXECUTE take('prepared', 'ann', '1 hour');
EXECUTE take('prepared', 'ann', '1 hour');
EXECUTE take('prepared', 'ann', '1 hour');
EXECUTE take('prepared', 'ann', '1 hour');
EXECUTE take('prepared', 'bob', '1 hour');
EXECUTE keep('prepared', 'ann', 7, '1 hour');
EXECUTE keep('prepared', 'ann', 6, '1 hour');
EXECUTE keep('prepared', 'ann', NULL, '1 hour');
DEALLOCATE ALL;

-- A procedure that commits after each call: every epoch once, in order.
CREATE TABLE told (key text, epoch bigint, n int GENERATED ALWAYS AS IDENTITY);
CREATE PROCEDURE take_and_give(key text, rounds int) LANGUAGE plpgsql AS $$
DECLARE
  given bigint;
BEGIN
  FOR i IN 1..rounds LOOP
    INSERT INTO told (key, epoch) SELECT take_and_give.key, a.epoch FROM lease.acquire(take_and_give.key, 'ann', '1 hour') a WHERE a.acquired RETURNING epoch INTO STRICT given;
    COMMIT;
    IF (SELECT status FROM lease.renew(take_and_give.key, 'ann', given, '1 hour')) <> 'ok' THEN RAISE 'not renewed'; END IF;
    IF i % 2 = 0 THEN COMMIT; END IF;
    IF (SELECT status FROM lease.release(take_and_give.key, 'ann', given)) <> 'ok' THEN RAISE 'not released'; END IF;
    IF i % 5 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
  END LOOP;
END $$;
CALL take_and_give('loop', 100);
SELECT count(*), min(epoch), max(epoch), bool_and(rising) AS rising FROM (SELECT epoch, epoch > lag(epoch, 1, 0) OVER (ORDER BY n) AS rising FROM told WHERE key = 'loop') t;
SELECT state_of('loop');

-- A COMMIT inside a procedure that comes too late: LE001, and what was committed before stays.
CREATE PROCEDURE too_late() LANGUAGE plpgsql AS $$
BEGIN
  PERFORM lease.acquire('late in time', 'ann', '1 hour');
  COMMIT;
  PERFORM lease.acquire('late too', 'ann', '20 ms');
  PERFORM pg_sleep(0.02);
  COMMIT;
  RAISE NOTICE 'not reached';
END $$;
CALL too_late();
SELECT state_of('late in time'), state_of('late too');
DO $$
BEGIN
  PERFORM lease.acquire('late do', 'ann', '20 ms');
  PERFORM pg_sleep(0.02);
  ROLLBACK;
  PERFORM lease.acquire('late do', 'ann', '1 hour');
  COMMIT;
END $$;
SELECT state_of('late do');

-- Cursors: a lease is taken when its row is fetched; WITH HOLD fetches the rest at the commit.
BEGIN;
DECLARE c CURSOR FOR SELECT i, acquired, epoch FROM generate_series(1, 3) i, LATERAL lease.acquire('cursor ' || i, 'ann', '1 hour');
FETCH 2 FROM c;
COMMIT;
SELECT i, state_of('cursor ' || i) FROM generate_series(1, 3) i;
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT i, acquired, epoch FROM generate_series(1, 3) i, LATERAL lease.acquire('held cursor ' || i, 'ann', '1 hour');
FETCH 1 FROM c;
COMMIT;
SELECT i, state_of('held cursor ' || i) FROM generate_series(1, 3) i;
FETCH ALL FROM c;
CLOSE c;

-- A function run row by row, and one stopped half way through.
SELECT i, acquired FROM generate_series(1, 1000) i, LATERAL lease.acquire('limited ' || i, 'ann', '1 hour') LIMIT 2;
SELECT count(*) FROM lease.leases WHERE key LIKE 'limited %';

-- Triggers, also one deferred to the commit.
CREATE TABLE jobs (key text, owner text);
CREATE FUNCTION take_for_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT (SELECT acquired FROM lease.acquire(TG_ARGV[0] || NEW.key, NEW.owner, '1 hour')) THEN RAISE EXCEPTION USING ERRCODE = 'ZZ001'; END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER at_once BEFORE INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION take_for_job('at once ');
CREATE CONSTRAINT TRIGGER deferred AFTER INSERT ON jobs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION take_for_job('deferred ');
BEGIN;
INSERT INTO jobs VALUES ('a', 'ann'), ('b', 'ann');
SELECT state_of('at once a'), state_of('at once b'), state_of('deferred a'), state_of('deferred b');
COMMIT;
SELECT state_of('at once a'), state_of('at once b'), state_of('deferred a'), state_of('deferred b');
INSERT INTO jobs VALUES ('c', 'bob'), ('a', 'bob');
SELECT state_of('at once a'), state_of('at once c'), state_of('deferred c');
COPY jobs FROM stdin;
d	dan
\.
SELECT state_of('at once d'), state_of('deferred d');
SELECT count(*) FROM lease.claims;

-- Beside temporary tables, large objects and notifications of the same transaction.
LISTEN lease_test;
BEGIN;
CREATE TEMP TABLE gone ON COMMIT DROP AS SELECT acquired FROM lease.acquire('mixed', 'ann', '1 hour');
SELECT lo_unlink(lo_create(0));
NOTIFY lease_test;
TABLE gone;
UNLISTEN *;
COMMIT;
SELECT state_of('mixed');
