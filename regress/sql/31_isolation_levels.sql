--
-- REPEATABLE READ and SERIALIZABLE in one session: own changes and unchanged keys are no conflict.
-- (What other sessions change meanwhile: specs/isolation-levels.)
-- Proves: I6, I10
--
SELECT acquired FROM lease.acquire('il held', 'ann', '1 hour');
SELECT acquired FROM lease.acquire('il free', 'ann', '1 hour');
SELECT status FROM lease.release('il free', 'ann', 1);

BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) > 0 AS snapshot FROM pg_class;
SELECT acquired, epoch FROM lease.acquire('il new', 'ann', '1 hour');
SELECT acquired, epoch FROM lease.acquire('il free', 'ann', '1 hour');
SELECT status FROM lease.renew('il held', 'ann', 1, '1 hour');
SELECT status FROM lease.renew('il new', 'ann', 1, '1 hour');
SAVEPOINT a;
SELECT status FROM lease.release('il new', 'ann', 1);
ROLLBACK TO a;
SELECT status FROM lease.release('il held', 'ann', 1);
SELECT state_of('il new'), state_of('il free'), state_of('il held');
COMMIT;
SELECT state_of('il new'), state_of('il free'), state_of('il held');

BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT acquired, epoch FROM lease.acquire('il new 2', 'ann', '1 hour');
SELECT acquired, epoch FROM lease.acquire('il held', 'ann', '1 hour');
SELECT status FROM lease.renew('il new', 'ann', 1, '1 hour');
SELECT status FROM lease.renew('il new', 'bob', 1, '1 hour');
SELECT key, state, epoch FROM lease.leases WHERE key LIKE 'il %' ORDER BY key;
COMMIT;
SELECT key, state, owner, epoch FROM lease.leases WHERE key LIKE 'il %' ORDER BY key;

BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE;
SELECT state_of('il new');
SELECT count(*) FROM lease.leases WHERE key LIKE 'il %';
COMMIT;

-- A lease that expires after the snapshot is judged by the clock, not by the snapshot.
SELECT acquired FROM lease.acquire('il expiring', 'ann', '1 s');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT state_of('il expiring');
SELECT pg_sleep(1);
SELECT state_of('il expiring');
SELECT status FROM lease.renew('il expiring', 'ann', 1, '1 hour');
SELECT state FROM lease.leases WHERE key = 'il expiring';
COMMIT;
