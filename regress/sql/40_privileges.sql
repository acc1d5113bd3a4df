--
-- USAGE on the schema is the gate; the tables stay closed; administration is not for everyone.
-- Proves: I10 (who may not, changes nothing)
--
\set VERBOSITY sqlstate
\pset null '(null)'
CREATE ROLE lease_outsider;
CREATE ROLE lease_insider;
CREATE ROLE lease_other;
GRANT USAGE ON SCHEMA lease TO lease_insider, lease_other;

-- Without USAGE: nothing.
SET SESSION AUTHORIZATION lease_outsider;
SELECT * FROM lease.acquire('priv', 'ann', '1 hour');
SELECT * FROM lease.renew('priv', 'ann', 1, '1 hour');
SELECT * FROM lease.release('priv', 'ann', 1);
SELECT * FROM lease.inspect('priv');
SELECT lease.now();
SELECT * FROM lease.leases;
SELECT * FROM lease.claims;
SELECT * FROM lease.clock;
SELECT * FROM lease.entry;
-- whatever there is, by the catalog
SELECT outcome_only(format('%s lease.%I(%s)', CASE p.prokind WHEN 'p' THEN 'CALL' ELSE 'SELECT' END, p.proname,
         (SELECT string_agg('NULL::' || type::regtype, ', ') FROM unnest(p.proargtypes) AS a (type)))) AS outcome, count(*) > 0 AS any
  FROM pg_proc p WHERE p.pronamespace = 'lease'::regnamespace GROUP BY 1;
SELECT outcome_only(format('SELECT * FROM lease.%I', relname)) AS outcome, count(*) > 0 AS any
  FROM pg_class WHERE relnamespace = 'lease'::regnamespace AND relkind IN ('r', 'v') GROUP BY 1;

-- With it: every function and view but for administration, no table.
SET SESSION AUTHORIZATION lease_insider;
SELECT acquired, epoch FROM lease.acquire('priv', 'ann', '1 hour');
SELECT status FROM lease.renew('priv', 'ann', 1, '1 hour');
SELECT state_of('priv');
SELECT count(lease.guard('priv', 'ann', 1));
CALL lease.wait_acquire('priv wait', 'ann', '1 hour', '0', NULL, NULL, NULL) \gset
SELECT :'acquired' AS acquired, :'epoch' AS epoch;
CREATE TEMP TABLE fenced (key text);
CREATE TRIGGER fence BEFORE INSERT OR UPDATE OR DELETE ON fenced FOR EACH ROW EXECUTE FUNCTION lease.fence('key');
BEGIN;
SELECT count(lease.guard('priv', 'ann', 1));
INSERT INTO fenced VALUES ('priv');
COMMIT;
DROP TABLE fenced;
SELECT status FROM lease.release('priv wait', 'ann', 1);
SELECT lease.now() IS NOT NULL AS now;
SELECT key, state, owner, epoch, granted_to FROM lease.leases WHERE key = 'priv';
SELECT count(*) FROM lease.claims;
SELECT count(*) FROM lease.waiters;
SELECT count(*) FROM lease.clock;
SELECT count(*) FROM lease.stats;
SELECT count(*) >= 0 AS sweepers FROM lease.sweepers;
-- by the catalog: nothing but these is refused
SELECT p.oid::regprocedure AS refused FROM pg_proc p
 WHERE p.pronamespace = 'lease'::regnamespace
   AND outcome_only(format('%s lease.%I(%s)', CASE p.prokind WHEN 'p' THEN 'CALL' ELSE 'SELECT' END, p.proname,
         (SELECT string_agg('NULL::' || type::regtype, ', ') FROM unnest(p.proargtypes) AS a (type)))) = '42501'
 ORDER BY 1;
SELECT relname AS refused FROM pg_class
 WHERE relnamespace = 'lease'::regnamespace AND relkind IN ('r', 'v') AND outcome_only(format('SELECT * FROM lease.%I', relname)) = '42501' ORDER BY 1;
SELECT lease.force_release('priv');
SELECT lease.reset_stats();
SELECT state_of('priv');
SELECT * FROM lease.entry;
SELECT * FROM lease.epoch_floor;
INSERT INTO lease.entry DEFAULT VALUES;
UPDATE lease.entry SET epoch = 100;
DELETE FROM lease.entry;
TRUNCATE lease.entry;
INSERT INTO lease.epoch_floor VALUES (100);
CREATE TABLE lease.mine ();

-- One trust domain: the owner is what the caller says, whatever the role; the role's name is kept for the eye.
SET SESSION AUTHORIZATION lease_other;
SELECT status FROM lease.renew('priv', 'ann', 1, '1 hour');
SELECT granted_to FROM lease.leases WHERE key = 'priv';
SELECT status FROM lease.release('priv', 'ann', 1);
SELECT acquired, epoch FROM lease.acquire('priv', 'ann', '1 hour');
SELECT granted_to FROM lease.leases WHERE key = 'priv';
RESET SESSION AUTHORIZATION;

-- Names on the caller's search_path do not get in between.
SET SESSION AUTHORIZATION lease_insider;
CREATE TEMP TABLE entry (key text, epoch bigint);
CREATE TEMP TABLE pg_class (relname text);
SET search_path = pg_temp, lease, public, pg_catalog;
SELECT acquired, epoch FROM lease.acquire('priv path', 'ann', '1 hour');
SELECT key, state, epoch FROM lease.leases WHERE key = 'priv path';
SET search_path = '';
SELECT status FROM lease.renew('priv path', 'ann', 1, '1 hour');
SELECT key, state, epoch FROM lease.leases WHERE key = 'priv path';
RESET search_path;
DROP TABLE pg_temp.entry, pg_temp.pg_class;
RESET SESSION AUTHORIZATION;

-- Through a SECURITY DEFINER function nobody needs USAGE.
CREATE FUNCTION take_priv() RETURNS boolean LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog AS $$
  SELECT acquired FROM lease.acquire('priv definer', 'ann', '1 hour')
$$;
SET SESSION AUTHORIZATION lease_outsider;
SELECT take_priv();
RESET SESSION AUTHORIZATION;
SELECT state_of('priv definer');

-- What PUBLIC has: SELECT on the views, EXECUTE on the functions for everyone, nothing on the schema and the tables.
SELECT has_schema_privilege('public', 'lease', 'USAGE') AS usage, has_schema_privilege('public', 'lease', 'CREATE') AS create;
SELECT relname, has_table_privilege('public', c.oid, 'SELECT') AS read, has_table_privilege('public', c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER') AS more
  FROM pg_class c WHERE relnamespace = 'lease'::regnamespace AND relkind IN ('r', 'v') ORDER BY 1;
SELECT proname, has_function_privilege('public', oid, 'EXECUTE') AS everyone FROM pg_proc
 WHERE pronamespace = 'lease'::regnamespace ORDER BY 1;

REVOKE USAGE ON SCHEMA lease FROM lease_insider, lease_other;
DROP ROLE lease_outsider, lease_insider, lease_other;
