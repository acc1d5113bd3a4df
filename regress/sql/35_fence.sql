--
-- lease.fence(): a fenced table is written under a guard or an own grant, or not at all, by whatever statement.
-- Proves: I3 (fencing effectiveness), I11 (a guard on one key is none on another)
--
\set VERBOSITY sqlstate
\pset null '(null)'
SELECT key, epoch FROM unnest(array['fence a', 'fence b', 'fence one']) key, LATERAL lease.acquire(key, 'ann', '1 hour');

-- One key for the whole table; keys in a column, and the epoch beside.
CREATE TABLE one (id int PRIMARY KEY, note text);
CREATE TRIGGER fence BEFORE INSERT OR UPDATE OR DELETE ON one FOR EACH ROW EXECUTE FUNCTION lease.fence('fence one');
CREATE TABLE account (id int PRIMARY KEY, balance int, dropped int, owner_key text, term bigint);
ALTER TABLE account DROP COLUMN dropped;
INSERT INTO account VALUES (0, 0, 'fence a', NULL), (100, 0, 'fence a', 100);
CREATE TRIGGER fence BEFORE INSERT OR UPDATE OR DELETE ON account FOR EACH ROW EXECUTE FUNCTION lease.fence('owner_key', 'term');

-- Without a guard: nothing.
SELECT statement, outcome(statement, 'guard') FROM unnest(array[
  $$INSERT INTO one VALUES (1, 'x')$$,
  $$INSERT INTO one SELECT i FROM generate_series(1, 3) i$$,
  $$INSERT INTO account VALUES (1, 10, 'fence a')$$,
  $$INSERT INTO account VALUES (0, 10, 'fence a') ON CONFLICT DO NOTHING$$,
  $$INSERT INTO account VALUES (0, 10, 'fence a') ON CONFLICT (id) DO UPDATE SET balance = 5$$,
  $$UPDATE account SET balance = 1 WHERE id = 0$$,
  $$UPDATE account SET balance = balance$$,
  $$DELETE FROM account$$,
  $$MERGE INTO account USING (VALUES (0)) v(id) ON account.id = v.id WHEN MATCHED THEN UPDATE SET balance = 1$$,
  $$MERGE INTO account USING (VALUES (0)) v(id) ON account.id = v.id WHEN MATCHED THEN DELETE$$,
  $$MERGE INTO account USING (VALUES (1)) v(id) ON account.id = v.id WHEN NOT MATCHED THEN INSERT VALUES (1, 1, 'fence a', 1)$$,
  $$WITH d AS (DELETE FROM account RETURNING id) SELECT id FROM d$$]) statement;
COPY account (id, balance, owner_key) FROM stdin;
1	10	fence a
\.
SELECT * FROM account ORDER BY id;

-- What the error says.
\set VERBOSITY default
INSERT INTO one VALUES (1, 'x');
INSERT INTO account VALUES (1, 10, 'fence a');
BEGIN;
SELECT lease.guard('fence a', 'ann', 1) IS NOT NULL AS guarded;
UPDATE account SET balance = 1 WHERE id = 100;
ROLLBACK;
\set VERBOSITY sqlstate

-- Under a guard: everything; the epoch is the guard's, whatever the statement says.
BEGIN;
SELECT lease.guard('fence one', 'ann', 1) IS NOT NULL AS guarded;
INSERT INTO one SELECT i FROM generate_series(1, 3) i;
UPDATE one SET note = 'changed' WHERE id > 1;
DELETE FROM one WHERE id = 3;
COMMIT;
SELECT * FROM one ORDER BY id;
BEGIN;
SELECT lease.guard('fence a', 'ann', 1) IS NOT NULL AS guarded;
INSERT INTO account VALUES (1, 10, 'fence a', NULL), (2, 20, 'fence a', 77), (3, 30, 'fence a', -1);
INSERT INTO account VALUES (1, 11, 'fence a') ON CONFLICT (id) DO UPDATE SET balance = EXCLUDED.balance;
INSERT INTO account VALUES (1, 12, 'fence a') ON CONFLICT DO NOTHING;
UPDATE account SET balance = 21, term = 99 WHERE id = 2;
COPY account (id, balance, owner_key) FROM stdin;
4	40	fence a
5	50	fence a
\.
MERGE INTO account USING (VALUES (4), (5), (6)) v(id) ON account.id = v.id
  WHEN MATCHED AND v.id = 4 THEN UPDATE SET balance = 41
  WHEN MATCHED THEN DELETE
  WHEN NOT MATCHED THEN INSERT VALUES (v.id, 60, 'fence a', 1000);
-- also a row from before the fence, without an epoch
UPDATE account SET balance = 1 WHERE id = 0;
DELETE FROM account WHERE id = 3;
COMMIT;
SELECT * FROM account ORDER BY id;

-- A row that a later term has written: neither UPDATE nor DELETE, also when they leave the epoch alone.
BEGIN;
SELECT lease.guard('fence a', 'ann', 1) IS NOT NULL AS guarded;
SELECT outcome($$UPDATE account SET balance = 1 WHERE id = 100$$, 'older');
SELECT outcome($$UPDATE account SET term = 0 WHERE id = 100$$, 'older');
SELECT outcome($$DELETE FROM account WHERE id = 100$$, 'older');
SELECT outcome($$INSERT INTO account VALUES (100, 1, 'fence a') ON CONFLICT (id) DO UPDATE SET balance = 1$$, 'older');
COMMIT;

-- A guard on one key is none on another; a row that moves needs both.
BEGIN;
SELECT lease.guard('fence b', 'ann', 1) IS NOT NULL AS guarded;
SELECT outcome($$UPDATE account SET balance = 2 WHERE id = 1$$, 'fence a');
SELECT outcome($$UPDATE account SET owner_key = 'fence b' WHERE id = 1$$, 'fence a');
SELECT outcome($$UPDATE account SET owner_key = 'fence c' WHERE id = 1$$, 'fence a');
INSERT INTO account VALUES (7, 70, 'fence b');
SELECT outcome($$UPDATE account SET owner_key = 'fence a' WHERE id = 7$$, 'fence a');
SELECT outcome($$INSERT INTO account VALUES (8, 80, 'fence b'), (9, 90, 'fence a')$$, 'fence a');
SELECT lease.guard('fence a', 'ann', 1) IS NOT NULL AS guarded;
UPDATE account SET owner_key = 'fence b' WHERE id = 1;
COMMIT;
SELECT * FROM account WHERE id IN (1, 7, 8, 9) ORDER BY id;

-- The next term writes with its epoch; under an own grant, before it is committed.
BEGIN;
SELECT epoch FROM lease.acquire('fence a', 'ann', '1 hour');
UPDATE account SET balance = 22 WHERE id = 2;
COMMIT;
SELECT id, term FROM account WHERE owner_key = 'fence a' ORDER BY id;
BEGIN;
SELECT lease.guard('fence a', 'ann', 2) IS NOT NULL AS guarded;
UPDATE account SET balance = 41 WHERE id = 4;
SELECT epoch FROM lease.acquire('fence a', 'ann', '1 hour');
UPDATE account SET balance = 61 WHERE id = 6;
SELECT status FROM lease.release('fence a', 'ann', 3);
-- what was granted is given back: the guard of before counts, which cannot write over the row of the grant
UPDATE account SET balance = 42 WHERE id = 4;
SELECT outcome($$UPDATE account SET balance = 62 WHERE id = 6$$, 'older');
COMMIT;
SELECT id, term FROM account WHERE owner_key = 'fence a' ORDER BY id;
SELECT state_of('fence a');
BEGIN;
SELECT epoch FROM lease.acquire('fence a', 'ann', '1 hour');
SELECT status FROM lease.release('fence a', 'ann', 5);
SELECT outcome($$UPDATE account SET balance = 1 WHERE id = 0$$, 'guard');
COMMIT;

-- Savepoints and exceptions: the guard goes, and what it covered with it.
SELECT epoch FROM lease.acquire('fence a', 'ann', '1 hour');
BEGIN;
SAVEPOINT s;
SELECT lease.guard('fence a', 'ann', 7) IS NOT NULL AS guarded;
UPDATE account SET balance = -1 WHERE id = 0;
ROLLBACK TO s;
SELECT outcome($$UPDATE account SET balance = -1 WHERE id = 0$$, 'guard');
SAVEPOINT t;
SELECT lease.guard('fence a', 'ann', 7) IS NOT NULL AS guarded;
RELEASE t;
UPDATE account SET balance = 3 WHERE id = 0;
COMMIT;
DO $$
BEGIN
  BEGIN
    PERFORM lease.guard('fence a', 'ann', 7);
    UPDATE account SET balance = -1 WHERE id = 0;
    RAISE division_by_zero;
  EXCEPTION WHEN division_by_zero THEN NULL;
  END;
  UPDATE account SET balance = -1 WHERE id = 0;
END $$;
SELECT balance FROM account WHERE id = 0;

-- The guard is judged at the commit like any other.
BEGIN;
SELECT epoch FROM lease.acquire('fence brief', 'ann', '1 s');
COMMIT;
BEGIN;
SELECT lease.guard('fence brief', 'ann', 1) IS NOT NULL AS guarded;
INSERT INTO account VALUES (20, 0, 'fence brief');
SELECT pg_sleep(1);
COMMIT;
SELECT count(*) FROM account WHERE id = 20;

-- Keys that are none.
BEGIN;
SELECT lease.guard('fence a', 'ann', 7) IS NOT NULL AS guarded;
SELECT outcome($$INSERT INTO account VALUES (10, 0, NULL)$$, 'owner_key');
SELECT outcome($$INSERT INTO account VALUES (10, 0, '')$$, 'owner_key');
SELECT outcome(format($$INSERT INTO account VALUES (10, 0, %L)$$, repeat('x', 256)), 'owner_key');
SELECT outcome(format($$INSERT INTO account VALUES (10, 0, %L)$$, repeat('x', 100000)), 'owner_key');
SELECT outcome($$UPDATE account SET owner_key = NULL WHERE id = 0$$, 'owner_key');
COMMIT;

-- Partitions, one with its columns in another order; a row that moves to another partition.
CREATE TABLE parted (owner_key text, n int, term bigint) PARTITION BY LIST (owner_key);
CREATE TABLE parted_a PARTITION OF parted FOR VALUES IN ('fence a');
CREATE TABLE parted_b (term bigint, gone int, n int, owner_key text);
ALTER TABLE parted_b DROP COLUMN gone;
ALTER TABLE parted ATTACH PARTITION parted_b FOR VALUES IN ('fence b');
CREATE TRIGGER fence BEFORE INSERT OR UPDATE OR DELETE ON parted FOR EACH ROW EXECUTE FUNCTION lease.fence('owner_key', 'term');
SELECT statement, outcome(statement, 'guard') FROM unnest(array[
  $$INSERT INTO parted VALUES ('fence a', 1)$$,
  $$INSERT INTO parted_b (owner_key, n) VALUES ('fence b', 1)$$]) statement;
BEGIN;
SELECT lease.guard('fence a', 'ann', 7) IS NOT NULL AS guarded;
INSERT INTO parted VALUES ('fence a', 1), ('fence a', 2);
SELECT outcome($$UPDATE parted SET owner_key = 'fence b' WHERE n = 1$$, 'fence b');
SELECT outcome($$INSERT INTO parted VALUES ('fence a', 3), ('fence b', 4)$$, 'fence b');
SELECT lease.guard('fence b', 'ann', 1) IS NOT NULL AS guarded;
UPDATE parted SET owner_key = 'fence b' WHERE n = 1;
INSERT INTO parted_b (owner_key, n) VALUES ('fence b', 5);
COPY parted FROM stdin;
fence a	6	\N
fence b	7	\N
\.
COMMIT;
SELECT tableoid::regclass, owner_key, n, term FROM parted ORDER BY n;

-- What foreign keys and triggers of others write is written like anything else.
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (id int REFERENCES parent ON DELETE CASCADE, owner_key text);
INSERT INTO parent VALUES (1);
INSERT INTO child VALUES (1, 'fence a');
CREATE TRIGGER fence BEFORE INSERT OR UPDATE OR DELETE ON child FOR EACH ROW EXECUTE FUNCTION lease.fence('owner_key');
SELECT outcome($$DELETE FROM parent$$, 'child');
CREATE FUNCTION write_later() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO one VALUES (NEW.id); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER later AFTER INSERT ON parent DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION write_later();
INSERT INTO parent VALUES (50);
BEGIN;
INSERT INTO parent VALUES (50);
SELECT lease.guard('fence one', 'ann', 1) IS NOT NULL AS guarded;
COMMIT;
SELECT id FROM one WHERE id = 50;
BEGIN;
SELECT lease.guard('fence a', 'ann', 7) IS NOT NULL AS guarded;
DELETE FROM parent WHERE id = 1;
COMMIT;
SELECT count(*) FROM child;

-- Through a view that can be written.
CREATE VIEW account_view AS SELECT id, balance, owner_key FROM account;
SELECT outcome($$UPDATE account_view SET balance = 0$$, 'guard');

-- Other types for key and epoch: varchar and domains will do, nothing else.
CREATE DOMAIN fence_key AS text CHECK (VALUE <> '');
CREATE DOMAIN fence_term AS bigint;
CREATE TABLE typed (k fence_key, v varchar(20), c char(7), n name, i int, b bigint, t fence_term, g text GENERATED ALWAYS AS (k || '') STORED,
  h bigint GENERATED ALWAYS AS (i) STORED);
CREATE FUNCTION try_fence(arguments text, statement text DEFAULT $$INSERT INTO typed (k, v, c, n) VALUES ('fence a', 'fence a', 'fence a', 'fence a')$$,
  word text DEFAULT NULL, timing text DEFAULT 'BEFORE INSERT OR UPDATE OR DELETE ON typed FOR EACH ROW') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  result text;
BEGIN
  EXECUTE format('CREATE TRIGGER fence %s EXECUTE FUNCTION lease.fence(%s)', timing, arguments);
  result := outcome(statement, word);
  EXECUTE format('DROP TRIGGER fence ON %s', (regexp_match(timing, ' ON (\w+)'))[1]);
  RETURN result;
END $$;
BEGIN;
SELECT lease.guard('fence a', 'ann', 7) IS NOT NULL AS guarded;
SELECT arguments, try_fence(arguments) FROM unnest(array['k', 'v', 'k, t', 'v, b', '"fence a"', '''fence a'', b']) arguments;
SELECT arguments, try_fence(arguments, word => word) FROM (VALUES ('c', 'text'), ('n', 'text'), ('i', 'text'), ('b', 'text'), ('k, i', 'bigint'), ('k, k', 'bigint'), ('k, h', 'generated'),
  ('g', 'generated'), ('k, nothing', 'nothing'), ('k, K', 'K'), ('', 'arguments'), ('k, t, t', 'arguments'), ('''''', 'empty'), (quote_literal(repeat('x', 256)), 'long')) v(arguments, word);
SELECT b, t, count(*) FROM typed GROUP BY 1, 2 ORDER BY 1, 2;
-- wrong timing and level
SELECT timing, try_fence('k', word => 'BEFORE', timing => timing) FROM unnest(array['AFTER INSERT ON typed FOR EACH ROW', 'BEFORE INSERT ON typed FOR EACH STATEMENT', 'AFTER INSERT ON typed']) timing;
SELECT try_fence('k', 'TRUNCATE typed', 'BEFORE', 'BEFORE TRUNCATE ON typed');
CREATE VIEW typed_view AS SELECT k FROM typed;
SELECT try_fence('k', $$INSERT INTO typed_view VALUES ('fence a')$$, 'BEFORE', 'INSTEAD OF INSERT ON typed_view FOR EACH ROW');
SELECT outcome('SELECT lease.fence()', 'BEFORE');
COMMIT;

-- A column that is renamed is no longer the argument, which then is a key of that name: refused, and the error says why.
CREATE TABLE renamed (k text);
CREATE TRIGGER fence BEFORE INSERT OR UPDATE OR DELETE ON renamed FOR EACH ROW EXECUTE FUNCTION lease.fence('k');
ALTER TABLE renamed RENAME k TO key;
\set VERBOSITY default
INSERT INTO renamed VALUES ('fence a');
\set VERBOSITY sqlstate

-- What is not fenced: TRUNCATE, what runs without triggers, and what a trigger that fires later does to the row.
BEGIN;
CREATE FUNCTION swap_key() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.owner_key := 'fence b'; RETURN NEW; END $$;
CREATE TRIGGER later BEFORE INSERT ON account FOR EACH ROW EXECUTE FUNCTION swap_key();
SELECT lease.guard('fence a', 'ann', 7) IS NOT NULL AS guarded;
INSERT INTO account VALUES (30, 0, 'fence a');
SELECT owner_key, term FROM account WHERE id = 30;
ALTER TRIGGER fence ON account RENAME TO z_fence;
SELECT outcome($$INSERT INTO account VALUES (31, 0, 'fence a')$$, 'fence b');
ROLLBACK;
BEGIN;
TRUNCATE one;
SET LOCAL session_replication_role = replica;
DELETE FROM account;
SELECT (SELECT count(*) FROM one) AS one, (SELECT count(*) FROM account) AS account;
ROLLBACK;

DROP VIEW account_view, typed_view;
DROP TABLE one, account, parted, child, parent, typed, renamed;
DROP DOMAIN fence_key, fence_term;
DROP FUNCTION write_later, try_fence;
\pset null ''
