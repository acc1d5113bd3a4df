--
-- lease.force_release: ends whatever hold there is; the holder learns it; only for whom it was granted.
-- Proves: I2 (epoch monotonicity), I3, I10
--
\set VERBOSITY sqlstate
\pset null '(null)'
SELECT epoch FROM lease.acquire('f', 'ann', '1 hour', NULL, '"where I am"');
SELECT * FROM lease.force_release('f');
SELECT state_of('f'), payload FROM lease.inspect('f');
SELECT granted_to FROM lease.leases WHERE key = 'f';
SELECT status FROM lease.renew('f', 'ann', 1, '1 hour');
SELECT status FROM lease.release('f', 'ann', 1);
SELECT outcome($$SELECT lease.guard('f', 'ann', 1)$$, 'ann');
SELECT acquired, epoch FROM lease.acquire('f', 'bob', '1 hour');

-- Unowned: released, lapsed, never seen.
SELECT status FROM lease.release('f', 'bob', 3);
SELECT * FROM lease.force_release('f');
SELECT state_of('f');
SELECT epoch FROM lease.acquire('f', 'ann', '1 s');
SELECT pg_sleep(1);
SELECT * FROM lease.force_release('f');
SELECT state_of('f');
SELECT status FROM lease.renew('f', 'ann', 6, '1 hour');
SELECT * FROM lease.force_release('f never seen');
SELECT count(*) FROM lease.leases WHERE key = 'f never seen';
SELECT outcome($$SELECT lease.force_release(NULL)$$, 'key');
SELECT outcome($$SELECT lease.force_release('')$$, 'key');

-- In a transaction: undone with it; over own changes; the last one counts.
BEGIN;
SELECT epoch FROM lease.acquire('f', 'ann', '1 hour');
SELECT * FROM lease.force_release('f');
SELECT * FROM lease.force_release('f');
SELECT epoch FROM lease.acquire('f', 'bob', '1 hour');
SELECT * FROM lease.force_release('f');
SAVEPOINT s;
SELECT epoch FROM lease.acquire('f', 'ann', '1 hour');
ROLLBACK TO s;
COMMIT;
SELECT state_of('f');
SELECT epoch FROM lease.acquire('f', 'ann', '1 hour');
BEGIN;
SELECT * FROM lease.force_release('f');
SELECT outcome($$SELECT lease.guard('f', 'ann', 13)$$, 'ann');
ROLLBACK;
SELECT state_of('f');
BEGIN;
SELECT lease.guard('f', 'ann', 13) IS NOT NULL AS guarded;
SELECT * FROM lease.force_release('f');
COMMIT;
SELECT state_of('f');

-- Refused where nothing can be changed.
BEGIN READ ONLY;
SELECT lease.force_release('f');
ROLLBACK;
BEGIN;
SELECT * FROM lease.force_release('f');
PREPARE TRANSACTION 'force';

-- Who may.
CREATE ROLE lease_operator;
CREATE ROLE lease_user;
GRANT USAGE ON SCHEMA lease TO lease_operator, lease_user;
GRANT EXECUTE ON FUNCTION lease.force_release(text) TO lease_operator;
SET ROLE lease_user;
SELECT * FROM lease.force_release('f');
SET ROLE lease_operator;
SELECT * FROM lease.force_release('f');
RESET ROLE;
REVOKE USAGE ON SCHEMA lease FROM lease_operator, lease_user;
REVOKE EXECUTE ON FUNCTION lease.force_release(text) FROM lease_operator;
DROP ROLE lease_operator, lease_user;
\pset null ''
