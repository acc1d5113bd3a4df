--
-- A row or floor that is brought in by hand cannot have an epoch from which counting on would overflow.
-- Proves: I2
--
\set VERBOSITY sqlstate
SELECT acquired, epoch FROM lease.acquire('limit', 'ann', '1 hour');
UPDATE lease.entry SET epoch = 9223372036854775807 WHERE key = 'limit';
UPDATE lease.entry SET epoch = 6917529027641081857 WHERE key = 'limit';
INSERT INTO lease.epoch_floor VALUES (9223372036854775807);
-- The greatest one goes on upwards.
UPDATE lease.entry SET epoch = 6917529027641081856 WHERE key = 'limit';
SELECT acquired, epoch FROM lease.acquire('limit', 'ann', '1 hour');
SELECT lease.release('limit', 'ann', 6917529027641081857);
SELECT state, epoch FROM lease.inspect('limit');
DELETE FROM lease.entry WHERE key = 'limit';
