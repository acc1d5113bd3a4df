# statement_timeout ends a wait only where it is in force: not when it was set inside the running statement, which PostgreSQL counts
# from the next one on, and not in a background worker, which has the database's setting but no timer.
# Proves: S7 (timeout: the wait's own bound), failure row "Operation transaction aborts"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

my $node = lease_cluster('not_in_force', conf => "wal_level = logical\nmax_wal_senders = 4\nmax_replication_slots = 4\n");
my $holder = session($node);
$holder->value(q{SELECT lease.acquire('k', 'holder', '1 hour')});

my $session = session($node);
my $answer = $session->run(q{DO $$ BEGIN SET LOCAL statement_timeout = '50ms'; PERFORM lease.acquire('k', 'bob', '1 s', '400 ms'); END $$});
is($answer->{state}, '57014', 'set inside the statement: 57014');
like($answer->{message}, qr/timed out after 0\.4 s/, 'set inside the statement: by the bound of the wait');

# an open renewal under the same name is waited for, too
$holder->value(q{BEGIN; SELECT lease.renew('k', 'holder', 1, '1 s')});
$session->answers(q{DO $$ BEGIN SET LOCAL statement_timeout = '50ms'; PERFORM lease.release('k', 'holder', 1); END $$}, '', 'nor does it end the wait for an open change');
$holder->run('ROLLBACK');

# --- A background worker: the apply worker of a subscription.
value($node, q{CREATE TABLE t (i int PRIMARY KEY)});
value($node, q{CREATE PUBLICATION p FOR TABLE t});
value($node, q{SELECT pg_create_logical_replication_slot('s', 'pgoutput')});
value($node, 'CREATE DATABASE subscriber');
create_lease($node, 'subscriber');
my $connection = $node->connstr . " dbname=postgres";
value($node, qq{
	CREATE TABLE t (i int PRIMARY KEY);
	CREATE TABLE public.answers (answer text);
	CREATE FUNCTION ask() RETURNS trigger LANGUAGE plpgsql AS \$\$
	DECLARE answer text;
	BEGIN
		BEGIN
			SELECT acquired INTO answer FROM lease.acquire('k', 'apply', '1 hour', '1 min');
		EXCEPTION WHEN query_canceled THEN answer := SQLERRM;
		END;
		INSERT INTO public.answers VALUES (answer);
		RETURN NULL;
	END \$\$;
	CREATE TRIGGER ask AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION ask();
	ALTER TABLE t ENABLE ALWAYS TRIGGER ask;
	SELECT lease.acquire('k', 'holder', '1 hour');
	ALTER DATABASE subscriber SET statement_timeout = '100ms';
}, 'subscriber');
value($node, qq{CREATE SUBSCRIPTION s CONNECTION '$connection' PUBLICATION p WITH (create_slot = false, slot_name = 's', copy_data = false)}, 'subscriber');
value($node, 'INSERT INTO t VALUES (1)');
$node->poll_query_until('subscriber', q{SELECT count(*) = 1 FROM lease.waiters}) or die 'the worker does not wait';
value($node, 'SELECT pg_sleep(0.5)');
is(value($node, q{SELECT lease.release('k', 'holder', 1)}, 'subscriber'), 'ok', 'a background worker waits: the holder releases');
$node->poll_query_until('subscriber', q{SELECT count(*) = 1 FROM answers}) or die 'the worker does not answer';
is(value($node, 'SELECT answer FROM answers', 'subscriber'), 'true', 'a background worker: it waited for the lease');

value($node, 'ALTER SUBSCRIPTION s DISABLE', 'subscriber');
value($node, 'ALTER SUBSCRIPTION s SET (slot_name = NONE)', 'subscriber');
value($node, 'DROP SUBSCRIPTION s', 'subscriber');
undef $_ foreach $holder, $session;
$node->stop;

done_testing();
