--
-- A guard while a function's setting makes the transaction read-only: the transaction may write before and after, so it is judged
-- at the commit, too. PostgreSQL 16 and later refuse such a setting (second expected output).
-- Proves: I3, A1
--
\set VERBOSITY sqlstate
CREATE TABLE guarded (n int);
CREATE FUNCTION guard_read_only(epoch bigint) RETURNS boolean LANGUAGE sql SET transaction_read_only = on AS $$ SELECT lease.guard('g set', 'ann', $1) IS NOT NULL $$;
SELECT epoch FROM lease.acquire('g set', 'ann', '1 s');
BEGIN;
INSERT INTO guarded VALUES (1);
SELECT guard_read_only(1);
SELECT pg_sleep(1);
COMMIT;
SELECT epoch FROM lease.acquire('g set', 'ann', '1 s');
BEGIN;
SELECT guard_read_only(2);
INSERT INTO guarded VALUES (1);
SELECT pg_sleep(1);
COMMIT;
SELECT count(*) FROM guarded;
DROP TABLE guarded;
DROP FUNCTION IF EXISTS guard_read_only;
