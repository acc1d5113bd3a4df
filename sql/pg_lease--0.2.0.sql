-- pg_lease 0.2.0

\echo Use "CREATE EXTENSION pg_lease" to load this file. \quit

-- A superuser runs this in a schema where others may have made functions and operators. PostgreSQL's own come first on the
-- search_path, but where they fit only by a conversion, one of somebody else's that fits exactly is taken. So every function
-- is qualified, and every operator is qualified or stands between types that PostgreSQL has it for.

-- Not IF NOT EXISTS: a schema that is there already was made by somebody else, with privileges or objects of theirs.
CREATE SCHEMA lease;
COMMENT ON SCHEMA lease IS 'pg_lease: USAGE is the gate, GRANT USAGE ON SCHEMA lease TO a role lets it in';

----------------------------------------------------------------------------------------------------------------------
-- Tables: read and written by the library only
----------------------------------------------------------------------------------------------------------------------

-- Every column is STORAGE PLAIN, so that a row is never compressed nor toasted and the table has no TOAST relation.
-- PostgreSQL 15 has no STORAGE clause in CREATE TABLE: the columns come in one ALTER TABLE, at whose end PostgreSQL
-- looks whether a TOAST relation is needed. Columns of fixed width come first.
--
-- fillfactor: a renewal is a HOT update, which needs room for the new version on the row's own page; half a page is
-- room for the next version of a row of 4 kB, and for many of ordinary ones while a long snapshot keeps them.
-- autovacuum: what pruning leaves behind is what such snapshots held up and what was purged. Nothing is planned over
-- this table, so it needs no statistics.
-- vacuum_truncate: truncation takes an ACCESS EXCLUSIVE lock, and the pages are wanted again.
CREATE TABLE lease.entry ()
	WITH (
		fillfactor = 50,
		autovacuum_vacuum_threshold = 1000,
		autovacuum_vacuum_scale_factor = 0.1,
		autovacuum_vacuum_cost_delay = 0,
		autovacuum_analyze_threshold = 2147483647,
		vacuum_truncate = off
	);
ALTER TABLE lease.entry
	ADD COLUMN epoch bigint NOT NULL,
	ADD COLUMN ttl bigint NOT NULL,
	ADD COLUMN granted_at timestamp with time zone NOT NULL,
	ADD COLUMN renewed_at timestamp with time zone NOT NULL,
	ADD COLUMN expires_at timestamp with time zone NOT NULL,
	ADD COLUMN clock_base timestamp with time zone NOT NULL,
	ADD COLUMN state "char" NOT NULL,
	ADD COLUMN key text COLLATE "C" NOT NULL,
	ADD COLUMN owner text COLLATE "C",
	ADD COLUMN granted_to text COLLATE "C",
	ADD COLUMN payload jsonb,
	ALTER COLUMN key SET STORAGE PLAIN,
	ALTER COLUMN owner SET STORAGE PLAIN,
	ALTER COLUMN granted_to SET STORAGE PLAIN,
	ALTER COLUMN payload SET STORAGE PLAIN,
	ADD CONSTRAINT entry_pkey PRIMARY KEY (key),
	-- The library's own writes pass these by. They say what a row can be, and hold for what a restore brings in.
	ADD CONSTRAINT entry_state CHECK (state IN ('f', 'h', 'l')),
	ADD CONSTRAINT entry_owner CHECK ((state = 'f') = (owner IS NULL)),
	ADD CONSTRAINT entry_payload CHECK (state = 'h' OR payload IS NULL),
	ADD CONSTRAINT entry_key_length CHECK (pg_catalog.octet_length(key) BETWEEN 1 AND 255),
	ADD CONSTRAINT entry_owner_length CHECK (pg_catalog.octet_length(owner) BETWEEN 1 AND 255),
	-- 2^62 + 2^61: above what advance_epochs can reach, and so far below the greatest bigint that no counting gets there
	ADD CONSTRAINT entry_epoch CHECK (epoch BETWEEN 1 AND 6917529027641081856),
	ADD CONSTRAINT entry_ttl CHECK (ttl > 0);

COMMENT ON TABLE lease.entry IS 'One row per key; see lease.leases';
COMMENT ON COLUMN lease.entry.epoch IS 'Raised by every grant and every release, never lowered';
COMMENT ON COLUMN lease.entry.ttl IS 'Time to live of the last grant or renewal, in microseconds';
COMMENT ON COLUMN lease.entry.granted_at IS 'Lease time of the last grant';
COMMENT ON COLUMN lease.entry.renewed_at IS 'Lease time of the last grant or renewal';
COMMENT ON COLUMN lease.entry.expires_at IS 'Lease time at which the hold ends, or ended: unowned since';
COMMENT ON COLUMN lease.entry.clock_base IS 'Start of the lease clock that the times were read from';
COMMENT ON COLUMN lease.entry.key IS 'What is leased: 1 to 255 bytes, compared byte by byte';
COMMENT ON COLUMN lease.entry.state IS 'h: held (until expires_at, whatever this says later), l: lapsed, f: free (released)';
COMMENT ON COLUMN lease.entry.owner IS 'The holder; of a lapsed lease the last one; NULL: free';
COMMENT ON COLUMN lease.entry.granted_to IS 'Name of the role that the last grant was made to, for the eye only; NULL once released';
COMMENT ON COLUMN lease.entry.payload IS 'What the holder publishes about itself; NULL once unowned';

-- No row means 0. Not a row with 0: a restored dump would then bring in a second one.
CREATE TABLE lease.epoch_floor (
	floor bigint NOT NULL CONSTRAINT epoch_floor_floor CHECK (floor BETWEEN 0 AND 6917529027641081856)
) WITH (vacuum_truncate = off);
COMMENT ON TABLE lease.epoch_floor IS 'No key without a row in lease.entry ever had a greater epoch than this';

-- A dump and restore must not give an epoch twice.
SELECT pg_catalog.pg_extension_config_dump('lease.entry', '');
SELECT pg_catalog.pg_extension_config_dump('lease.epoch_floor', '');

----------------------------------------------------------------------------------------------------------------------
-- The four operations
----------------------------------------------------------------------------------------------------------------------

-- VOLATILE, PARALLEL UNSAFE and not STRICT, all of them: a NULL where a value is needed is an error, not a NULL result.

CREATE FUNCTION lease.acquire(
	key text,
	owner text,
	ttl interval,
	wait interval DEFAULT NULL,
	payload jsonb DEFAULT NULL,
	OUT acquired boolean,
	OUT epoch bigint,
	OUT expires_at timestamp with time zone
)
	LANGUAGE c VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'lease_acquire';
COMMENT ON FUNCTION lease.acquire(text, text, interval, interval, jsonb)
	IS 'Take the lease of a key that is unowned, or owned by the same owner already, under a new epoch';

CREATE PROCEDURE lease.wait_acquire(
	key text,
	owner text,
	ttl interval,
	wait interval,
	INOUT acquired boolean DEFAULT NULL,
	INOUT epoch bigint DEFAULT NULL,
	INOUT expires_at timestamp with time zone DEFAULT NULL
)
	LANGUAGE c
	AS 'MODULE_PATHNAME', 'lease_wait_acquire';
COMMENT ON PROCEDURE lease.wait_acquire(text, text, interval, interval, boolean, bigint, timestamp with time zone)
	IS 'acquire with a wait that holds no snapshot: commits first';

CREATE FUNCTION lease.renew(
	key text,
	owner text,
	epoch bigint,
	ttl interval,
	OUT status text,
	OUT expires_at timestamp with time zone
)
	LANGUAGE c VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'lease_renew';
COMMENT ON FUNCTION lease.renew(text, text, bigint, interval)
	IS 'Hold the lease for ttl from now: ok, not_owner, lapsed or epoch_mismatch';

CREATE FUNCTION lease.release(
	key text,
	owner text,
	epoch bigint,
	OUT status text
)
	LANGUAGE c VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'lease_release';
COMMENT ON FUNCTION lease.release(text, text, bigint)
	IS 'Give the lease up: ok, not_owner, lapsed or epoch_mismatch';

CREATE FUNCTION lease.inspect(
	key text,
	OUT state text,
	OUT owner text,
	OUT epoch bigint,
	OUT expires_at timestamp with time zone,
	OUT remaining interval,
	OUT payload jsonb,
	OUT in_flight boolean
)
	LANGUAGE c VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'lease_inspect';
COMMENT ON FUNCTION lease.inspect(text)
	IS 'What the lease of a key is now: free, held or lapsed';

CREATE FUNCTION lease.guard(
	key text,
	owner text,
	epoch bigint,
	OUT expires_at timestamp with time zone
)
	LANGUAGE c VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'lease_guard';
COMMENT ON FUNCTION lease.guard(text, text, bigint)
	IS 'Let the transaction commit only if this owner still holds the key with this epoch';

CREATE FUNCTION lease.fence()
	RETURNS trigger
	LANGUAGE c VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'lease_fence';
COMMENT ON FUNCTION lease.fence()
	IS 'Trigger, BEFORE INSERT OR UPDATE OR DELETE, FOR EACH ROW: rows can be written only under a guard';

CREATE FUNCTION lease.now()
	RETURNS timestamp with time zone
	LANGUAGE c VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'lease_now';
COMMENT ON FUNCTION lease.now()
	IS 'The lease clock, which every expiry is judged by';

----------------------------------------------------------------------------------------------------------------------
-- Administration
----------------------------------------------------------------------------------------------------------------------

CREATE FUNCTION lease.force_release(
	key text,
	OUT owner text,
	OUT epoch bigint
)
	LANGUAGE c VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'lease_force_release';
COMMENT ON FUNCTION lease.force_release(text)
	IS 'End whatever hold and uncommitted change of a key there is; tells owner and epoch as they were';

----------------------------------------------------------------------------------------------------------------------
-- Views
----------------------------------------------------------------------------------------------------------------------

CREATE FUNCTION lease.list_leases(
	OUT key text,
	OUT state text,
	OUT owner text,
	OUT epoch bigint,
	OUT expires_at timestamp with time zone,
	OUT remaining interval,
	OUT ttl interval,
	OUT granted_at timestamp with time zone,
	OUT renewed_at timestamp with time zone,
	OUT granted_to text,
	OUT payload jsonb,
	OUT in_flight boolean
)
	RETURNS SETOF record
	LANGUAGE c VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'lease_list_leases';
COMMENT ON FUNCTION lease.list_leases() IS 'Serves view lease.leases';

CREATE VIEW lease.leases AS
	SELECT key, state, owner, epoch, expires_at, remaining, ttl, granted_at, renewed_at, granted_to, payload, in_flight
	FROM lease.list_leases();
COMMENT ON VIEW lease.leases IS 'Every key that has a row, as it is now, the caller''s own uncommitted changes included';
COMMENT ON COLUMN lease.leases.remaining IS 'Time until expires_at by the lease clock; NULL once unowned';
COMMENT ON COLUMN lease.leases.in_flight IS 'Another session''s uncommitted change of the key is under way';

CREATE FUNCTION lease.list_claims(
	OUT key text,
	OUT pid integer,
	OUT kind text,
	OUT owner text,
	OUT epoch bigint,
	OUT since timestamp with time zone,
	OUT deadline timestamp with time zone,
	OUT sealed boolean
)
	RETURNS SETOF record
	LANGUAGE c VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'lease_list_claims';
COMMENT ON FUNCTION lease.list_claims() IS 'Serves view lease.claims';

CREATE VIEW lease.claims AS
	SELECT key, pid, kind, owner, epoch, since, deadline, sealed
	FROM lease.list_claims();
COMMENT ON VIEW lease.claims IS 'The uncommitted changes of this database''s keys';
COMMENT ON COLUMN lease.claims.since IS 'Lease time at which the claim was made';
COMMENT ON COLUMN lease.claims.deadline IS 'Lease time from which others may take the key while the transaction is still open; NULL: none';
COMMENT ON COLUMN lease.claims.sealed IS 'The transaction is committing: the key cannot be taken any more';

CREATE FUNCTION lease.list_waiters(
	OUT key text,
	OUT pid integer,
	OUT owner text,
	OUT "position" integer,
	OUT since timestamp with time zone,
	OUT deadline timestamp with time zone,
	OUT waits_for text,
	OUT blocker_pid integer
)
	RETURNS SETOF record
	LANGUAGE c VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'lease_list_waiters';
COMMENT ON FUNCTION lease.list_waiters() IS 'Serves view lease.waiters';

CREATE VIEW lease.waiters AS
	SELECT key, pid, owner, "position", since, deadline, waits_for, blocker_pid
	FROM lease.list_waiters();
COMMENT ON VIEW lease.waiters IS 'The sessions that wait for this database''s keys';
COMMENT ON COLUMN lease.waiters.owner IS 'For whom it waits; NULL: for its commit';
COMMENT ON COLUMN lease.waiters."position" IS 'Place in the key''s queue, from 1; NULL: waits for another transaction''s change to end, not for the lease';
COMMENT ON COLUMN lease.waiters.since IS 'Lease time at which the call or commit began';
COMMENT ON COLUMN lease.waiters.deadline IS 'Lease time at which it gives up by itself; NULL: when what it waits for ends';
COMMENT ON COLUMN lease.waiters.waits_for IS 'What stands in the way now: lease, uncommitted change, commit or guard';
COMMENT ON COLUMN lease.waiters.blocker_pid IS 'Whose change, commit or guard; NULL for a lease, which is no process''s';

CREATE FUNCTION lease.read_clock(
	OUT lease_time timestamp with time zone,
	OUT wall_time timestamp with time zone
)
	LANGUAGE c VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'lease_read_clock';
COMMENT ON FUNCTION lease.read_clock() IS 'Serves view lease.clock';

CREATE VIEW lease.clock AS
	SELECT lease_time, wall_time, lease_time OPERATOR(pg_catalog.-) wall_time AS difference
	FROM lease.read_clock();
COMMENT ON VIEW lease.clock IS 'The lease clock beside the wall clock, both read at one moment';
COMMENT ON COLUMN lease.clock.difference IS 'How far lease time is ahead of the wall clock; not zero once the wall clock was stepped';

CREATE FUNCTION lease.read_stats(
	OUT grants bigint,
	OUT takeovers bigint,
	OUT regrants bigint,
	OUT denials bigint,
	OUT renewals bigint,
	OUT releases bigint,
	OUT refused_not_owner bigint,
	OUT refused_lapsed bigint,
	OUT refused_epoch_mismatch bigint,
	OUT waits bigint,
	OUT wake_ups bigint,
	OUT hand_offs bigint,
	OUT passed_over bigint,
	OUT safety_ticks bigint,
	OUT safety_ticks_that_helped bigint,
	OUT timeouts bigint,
	OUT deadlocks bigint,
	OUT cancelled_waits bigint,
	OUT broken_claims bigint,
	OUT commit_refusals bigint,
	OUT lapses_swept bigint,
	OUT lapses_found bigint,
	OUT sweep_passes bigint,
	OUT sweep_rows bigint,
	OUT ring_overflows bigint,
	OUT rescans bigint,
	OUT sweep_delay_last interval,
	OUT sweep_delay_max interval,
	OUT stats_reset timestamp with time zone
)
	LANGUAGE c VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'lease_read_stats';
COMMENT ON FUNCTION lease.read_stats() IS 'Serves view lease.stats';

CREATE VIEW lease.stats AS
	SELECT pg_catalog.current_database() AS database,
		grants,
		takeovers,
		regrants,
		denials,
		renewals,
		releases,
		refused_not_owner,
		refused_lapsed,
		refused_epoch_mismatch,
		waits,
		wake_ups,
		hand_offs,
		passed_over,
		safety_ticks,
		safety_ticks_that_helped,
		timeouts,
		deadlocks,
		cancelled_waits,
		broken_claims,
		commit_refusals,
		lapses_swept,
		lapses_found,
		sweep_passes,
		sweep_rows,
		ring_overflows,
		rescans,
		sweep_delay_last,
		sweep_delay_max,
		stats_reset
	FROM lease.read_stats();
COMMENT ON VIEW lease.stats IS 'What has been counted in this database since stats_reset, at the latest since the start of the server; NULLs: nothing is counted in it';
COMMENT ON COLUMN lease.stats.grants IS 'Leases acquired, committed';
COMMENT ON COLUMN lease.stats.takeovers IS 'Of these: of a key whose last lease had lapsed';
COMMENT ON COLUMN lease.stats.regrants IS 'Of these: to the owner that held the lease';
COMMENT ON COLUMN lease.stats.denials IS 'Calls of acquire that answered "not acquired"';
COMMENT ON COLUMN lease.stats.renewals IS 'Renewals, committed';
COMMENT ON COLUMN lease.stats.releases IS 'Live leases released by their holder or by force, committed';
COMMENT ON COLUMN lease.stats.refused_not_owner IS 'Calls of renew and release that answered not_owner';
COMMENT ON COLUMN lease.stats.refused_lapsed IS 'Calls of renew and release that answered lapsed';
COMMENT ON COLUMN lease.stats.refused_epoch_mismatch IS 'Calls of renew and release that answered epoch_mismatch';
COMMENT ON COLUMN lease.stats.waits IS 'Calls and commits that had to sleep';
COMMENT ON COLUMN lease.stats.wake_ups IS 'Sessions woken because something that they wait for has changed';
COMMENT ON COLUMN lease.stats.hand_offs IS 'Keys reserved for the first in their queue';
COMMENT ON COLUMN lease.stats.passed_over IS 'First waiters that let their turn pass';
COMMENT ON COLUMN lease.stats.safety_ticks IS 'Sleeps that nothing ended but the safety tick of 1 s';
COMMENT ON COLUMN lease.stats.safety_ticks_that_helped IS 'Sleeps that the safety tick or the look for a deadlock ended, after which there was something to do that nobody had told; zero, unless a process was frozen';
COMMENT ON COLUMN lease.stats.timeouts IS 'Blocking acquires that ran out of time';
COMMENT ON COLUMN lease.stats.deadlocks IS 'Waits that ended because they closed a ring';
COMMENT ON COLUMN lease.stats.cancelled_waits IS 'Waits that ended in another error: cancelled, statement_timeout, lock_timeout';
COMMENT ON COLUMN lease.stats.broken_claims IS 'Uncommitted changes that lost their key to another session';
COMMENT ON COLUMN lease.stats.commit_refusals IS 'Transactions that could not commit because of a lease';
COMMENT ON COLUMN lease.stats.lapses_swept IS 'Lapses written down by the sweeper';
COMMENT ON COLUMN lease.stats.lapses_found IS 'Lapses that a change of the key met before the sweeper did';
COMMENT ON COLUMN lease.stats.sweep_passes IS 'Transactions of the sweeper';
COMMENT ON COLUMN lease.stats.sweep_rows IS 'Keys that these looked at';
COMMENT ON COLUMN lease.stats.ring_overflows IS 'Times that commits outran the sweeper';
COMMENT ON COLUMN lease.stats.rescans IS 'Times that the sweeper read the whole table, at its start included';
COMMENT ON COLUMN lease.stats.sweep_delay_last IS 'From the expiry of the lease that was swept last to the end of the sweep';
COMMENT ON COLUMN lease.stats.sweep_delay_max IS 'The longest of these';
COMMENT ON COLUMN lease.stats.stats_reset IS 'Lease time since which all of this counts';

CREATE FUNCTION lease.list_sweepers(
	OUT database text,
	OUT pid integer,
	OUT status text,
	OUT next_deadline timestamp with time zone,
	OUT leases bigint,
	OUT last_error text
)
	RETURNS SETOF record
	LANGUAGE c VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'lease_list_sweepers';
COMMENT ON FUNCTION lease.list_sweepers() IS 'Serves view lease.sweepers';

CREATE VIEW lease.sweepers AS
	SELECT database, pid, status, next_deadline, leases, last_error
	FROM lease.list_sweepers();
COMMENT ON VIEW lease.sweepers IS 'The databases in which leases are used, and how it stands with the worker that writes down their lapses';
COMMENT ON COLUMN lease.sweepers.status IS 'running; or why not: starting, restarting (it ended, and is started again after a while), no worker slot, held off (by a command that needs the database to itself)';
COMMENT ON COLUMN lease.sweepers.next_deadline IS 'Lease time at which it looks at a lease next; NULL: it knows of none';
COMMENT ON COLUMN lease.sweepers.leases IS 'How many keys it has in mind';
COMMENT ON COLUMN lease.sweepers.last_error IS 'What it failed with last, in this database';

----------------------------------------------------------------------------------------------------------------------
-- For the DBA
----------------------------------------------------------------------------------------------------------------------

CREATE FUNCTION lease.reset_stats()
	RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'lease_reset_stats';
COMMENT ON FUNCTION lease.reset_stats() IS 'Let the counters of lease.stats begin anew';

----------------------------------------------------------------------------------------------------------------------
-- Privileges
----------------------------------------------------------------------------------------------------------------------

-- They are to be these, whatever ALTER DEFAULT PRIVILEGES says here: nobody but the owner reaches the tables or enters
-- the schema; who is let in by USAGE may call and look, administration excepted.
DO $$
DECLARE
	schema pg_catalog.oid := 'lease'::pg_catalog.regnamespace::pg_catalog.oid;
	kind pg_catalog.text;
	name pg_catalog.text;
	grantee pg_catalog.text;
BEGIN
	FOR kind, name, grantee IN
		SELECT object.kind, object.name,
			CASE
				WHEN acl.grantee OPERATOR(pg_catalog.=) 0::pg_catalog.oid THEN 'PUBLIC'::pg_catalog.text
				ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(acl.grantee)::pg_catalog.text)
			END
		FROM (
			SELECT 'SCHEMA'::pg_catalog.text, 'lease'::pg_catalog.text, nspowner, nspacl
			FROM pg_catalog.pg_namespace
			WHERE oid OPERATOR(pg_catalog.=) schema
			UNION ALL
			SELECT 'TABLE'::pg_catalog.text,
				pg_catalog.format('lease.%I'::pg_catalog.text, relname), relowner, relacl
			FROM pg_catalog.pg_class
			WHERE relnamespace OPERATOR(pg_catalog.=) schema
				AND relkind OPERATOR(pg_catalog.=) ANY ('{r,v}'::pg_catalog."char"[])
			UNION ALL
			SELECT 'ROUTINE'::pg_catalog.text, oid::pg_catalog.regprocedure::pg_catalog.text, proowner,
				coalesce(proacl, pg_catalog.acldefault('f'::pg_catalog."char", proowner))
			FROM pg_catalog.pg_proc
			WHERE pronamespace OPERATOR(pg_catalog.=) schema
		) AS object (kind, name, owner, acl),
			pg_catalog.aclexplode(object.acl) AS acl
		WHERE acl.grantee OPERATOR(pg_catalog.<>) object.owner
	LOOP
		EXECUTE pg_catalog.format('REVOKE ALL ON %s %s FROM %s'::pg_catalog.text, kind, name, grantee);
	END LOOP;
END
$$;

GRANT SELECT ON lease.leases, lease.claims, lease.waiters, lease.clock, lease.stats, lease.sweepers TO PUBLIC;
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA lease TO PUBLIC;
REVOKE EXECUTE ON FUNCTION lease.force_release(text), lease.reset_stats() FROM PUBLIC;
