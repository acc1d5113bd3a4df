--
-- CREATE EXTENSION: what it makes, what it refuses, what every role may see of it.
-- The first file: the later ones use the database and the helpers it leaves.
-- Proves: I9 (nothing of the lease state is unlogged or left out of a dump), D1, R3 (nothing to set up besides CREATE EXTENSION)
--
\set VERBOSITY sqlstate

-- A schema planted beforehand is not taken over.
CREATE SCHEMA lease;
CREATE EXTENSION pg_lease;
DROP SCHEMA lease;

-- Not trusted: the privilege to create in the database is not enough, nor is owning it.
CREATE ROLE lease_nobody;
DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO lease_nobody', current_database()); END $$;
SET ROLE lease_nobody;
CREATE EXTENSION pg_lease;
RESET ROLE;
DO $$ BEGIN EXECUTE format('REVOKE CREATE ON DATABASE %I FROM lease_nobody', current_database()); END $$;
SELECT pg_get_userbyid(datdba) AS owner FROM pg_database WHERE datname = current_database() \gset
ALTER DATABASE :"DBNAME" OWNER TO lease_nobody;
SET ROLE lease_nobody;
CREATE EXTENSION pg_lease;
RESET ROLE;
ALTER DATABASE :"DBNAME" OWNER TO :"owner";
DROP ROLE lease_nobody;

CREATE EXTENSION pg_lease;
SELECT extversion, extrelocatable FROM pg_extension WHERE extname = 'pg_lease';
SELECT superuser, trusted, schema FROM pg_available_extension_versions WHERE name = 'pg_lease' AND installed;
CREATE EXTENSION pg_lease;

-- The functions: names and types of what goes in and comes out, in order. (What serves the views shows in their columns.)
CREATE VIEW lease_functions AS
  SELECT p.oid, p.proname, p.prokind, p.provolatile, p.proparallel, p.proisstrict, p.proretset, p.proconfig, p.prosqlbody, p.prorettype, l.lanname,
         a.number, a.name, a.mode, format_type(a.type, NULL) AS type
    FROM pg_proc p
    JOIN pg_language l ON l.oid = p.prolang
    LEFT JOIN LATERAL unnest(coalesce(p.proallargtypes, p.proargtypes::oid[]), p.proargnames,
           coalesce(p.proargmodes, array_fill('i'::"char", ARRAY[greatest(p.pronargs, 1)])))
         WITH ORDINALITY a(type, name, mode, number) ON true
   WHERE p.pronamespace = 'lease'::regnamespace;
SELECT proname,
       string_agg(name || ' ' || type, ', ' ORDER BY number) FILTER (WHERE mode IN ('i', 'b')) AS arguments,
       string_agg(name || ' ' || type, ', ' ORDER BY number) FILTER (WHERE mode IN ('o', 'b', 't')) AS results
  FROM lease_functions
 WHERE proname !~ '^(list|read)_'
 GROUP BY oid, proname ORDER BY proname;
SELECT DISTINCT proname, prokind, prorettype::regtype AS returns, proretset AS set FROM lease_functions
 WHERE prokind <> 'f' OR proname IN ('fence', 'reset_stats', 'now', 'guard', 'release') OR proname ~ '^(list|read)_' ORDER BY proname;
SELECT lease.now() IS NOT NULL AS now, pg_typeof(lease.now()) AS type;

-- Volatile, parallel unsafe, not strict; what is not C pins its search_path.
SELECT proname, provolatile, proparallel, proisstrict FROM lease_functions
 WHERE provolatile <> 'v' OR proparallel <> 'u' OR proisstrict;
SELECT proname FROM lease_functions
 WHERE lanname NOT IN ('c', 'internal') AND prosqlbody IS NULL
   AND NOT coalesce(array_to_string(proconfig, ',') ~ 'search_path=', false);

-- The state: logged, without a toast table, one index on the key, every column plain, nothing of it left out of a dump.
SELECT c.relname, c.relpersistence, c.reltoastrelid, c.oid = ANY (e.extconfig) AS dumped,
       (SELECT count(*) FROM pg_index i WHERE i.indrelid = c.oid) AS indexes
  FROM pg_class c, pg_extension e
 WHERE c.relnamespace = 'lease'::regnamespace AND c.relkind = 'r' AND e.extname = 'pg_lease' AND c.relname IN ('entry', 'epoch_floor')
 ORDER BY c.relname;
SELECT a.attname AS not_plain FROM pg_attribute a
 WHERE a.attrelid = 'lease.entry'::regclass AND a.attnum > 0 AND a.attstorage <> 'p';
SELECT i.indisprimary, i.indisunique, pg_get_indexdef(i.indexrelid, 1, true) AS indexed
  FROM pg_index i WHERE i.indrelid = 'lease.entry'::regclass;
SELECT collname FROM pg_attribute a JOIN pg_collation c ON c.oid = a.attcollation
 WHERE a.attrelid = 'lease.entry'::regclass AND a.attname = 'key';
SELECT count(*) AS entries FROM lease.entry;
SELECT count(*) AS floors FROM lease.epoch_floor;

-- The schema belongs to the extension.
DROP SCHEMA lease CASCADE;

-- The settings.
SELECT name, setting, unit, min_val, max_val, context FROM pg_settings WHERE name LIKE 'pg\_lease.%' ORDER BY name;

-- Helpers of the later files.
-- The SQLSTATE of a statement, followed by the word its message must name (or by the message that does not).
CREATE FUNCTION outcome(statement text, word text DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  state text;
  message text;
BEGIN
  EXECUTE statement;
  RETURN 'done';
EXCEPTION WHEN OTHERS OR query_canceled THEN
  GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT;
  RETURN concat_ws(' ', state, CASE WHEN word IS NULL THEN NULL WHEN message ~* ('\m' || word || '\M') THEN word ELSE 'not named: ' || message END);
END $$;
CREATE FUNCTION outcome_only(statement text) RETURNS text LANGUAGE sql AS $$ SELECT left(outcome(statement), 5) $$;
-- A key's state without its times.
CREATE FUNCTION state_of(key text) RETURNS text LANGUAGE sql AS $$
  SELECT concat_ws(' ', i.state, i.owner, i.epoch) FROM lease.inspect(state_of.key) i
$$;
