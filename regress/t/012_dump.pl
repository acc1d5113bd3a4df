# Dump and restore: every key with its epoch, in every format; no epoch is ever given again; what was restored is swept.
# Proves: I2, I9, D2, R3

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeasePoints;
use LeaseTest;
use Test::More;

my $node = points_cluster('dump', conf => 'max_worker_processes = 20');
my $dir = PostgreSQL::Test::Utils::tempdir();
my $columns = 'key, state, owner, epoch, expires_at, ttl, granted_at, renewed_at, granted_to, payload';

$node->safe_psql('postgres', $_) foreach (
	q{SELECT lease.acquire('held', 'ann', '1 hour', NULL, $json${"a": "\\\\ ' \" \n"}$json$)},
	q{SELECT lease.acquire('many', 'ann', '1 hour') FROM generate_series(1, 41)},
	q{SELECT lease.release('many', 'ann', epoch) FROM lease.inspect('many')},
	q{SELECT lease.acquire(E'odd ''"\\\\\n\t😀', E'\\\\.', '1 hour')},
	q{SELECT lease.acquire('lapsed', 'ann', '1 s')},
	q{SELECT pg_sleep(1)});

# A lease that would have ended before the last timestamp there is when it was asked for, but not when the wait is over.
my ($holder, $waiter) = map { session($node) } 1 .. 2;
$holder->value(q{SELECT lease.acquire('edge', 'ann', '1 hour')});
$waiter->send(q{SELECT acquired FROM lease.acquire('edge', 'bob', '294276-12-31 23:59:59.999999+00'::timestamptz - lease.now() - interval '3 s', '1 min')});
wait_for_waiters($node, 1);
$holder->value(q{SELECT pg_sleep(3)});
$holder->value(q{SELECT lease.release('edge', 'ann', 1)});
$waiter->answers(undef, '22023', 'past the last timestamp after a wait: 22023');
row_is($node, q{SELECT state_of('edge')}, 'free 2', 'past the last timestamp after a wait: nothing was changed');
$waiter->answers(q{SELECT acquired FROM lease.acquire('edge', 'bob', '294276-12-31 23:59:59.999999+00'::timestamptz - lease.now() - interval '1 min')}, 't', 'a minute before it: granted');
$_->quit foreach $holder, $waiter;

# 'brief' is held in each dump, and over soon
my $leases = "SELECT $columns FROM lease.leases WHERE key <> 'brief' ORDER BY key";
my $before = value($node, $leases);

my %restore = (
	'plain' => sub {
		my ($db) = @_;
		$node->command_ok([ 'pg_dump', '-f', "$dir/plain.sql", 'postgres' ], 'pg_dump, plain');
		$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $db, '-f', "$dir/plain.sql" ], 'restored by psql');
	},
	'custom' => sub {
		my ($db) = @_;
		$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dir/custom", 'postgres' ], 'pg_dump, custom format');
		$node->command_ok([ 'pg_restore', '-e', '-d', $db, "$dir/custom" ], 'restored by pg_restore');
	},
	'inserts' => sub {
		my ($db) = @_;
		$node->command_ok([ 'pg_dump', '--column-inserts', '-f', "$dir/inserts.sql", 'postgres' ], 'pg_dump --column-inserts');
		$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $db, '-f', "$dir/inserts.sql" ], 'restored by psql');
	},
	'inserts of the data' => sub {
		my ($db) = @_;
		create_lease($node, $db);
		# with a sweeper that has read the empty table
		$node->poll_query_until($db, q{SELECT status = 'running' AND rescans > 0 FROM lease.sweepers s JOIN lease.stats USING (database)}) or die 'no sweeper';
		$node->command_ok([ 'pg_dump', '--data-only', '--inserts', '-t', 'lease.*', '-f', "$dir/data_inserts.sql", 'postgres' ], 'pg_dump --data-only --inserts');
		$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $db, '-f', "$dir/data_inserts.sql" ], 'restored by psql');
	},
	'two steps' => sub {
		my ($db) = @_;
		$node->command_ok([ 'pg_dump', '--schema-only', '-f', "$dir/schema.sql", 'postgres' ], 'pg_dump --schema-only');
		$node->command_ok([ 'pg_dump', '--data-only', '-f', "$dir/data.sql", 'postgres' ], 'pg_dump --data-only');
		$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $db, '-f', "$dir/schema.sql" ], 'the schema restored');
		is(value($node, 'SELECT count(*) FROM lease.leases', $db), '0', 'no lease comes with the schema');
		$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $db, '-f', "$dir/data.sql" ], 'the data restored');
	},
	'tables' => sub {
		my ($db) = @_;
		create_lease($node, $db);
		$node->command_ok([ 'pg_dump', '--data-only', '-t', 'lease.*', '-f', "$dir/tables.sql", 'postgres' ], 'pg_dump --data-only -t lease.*');
		$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $db, '-f', "$dir/tables.sql" ], 'restored by psql');
	});
foreach my $how (sort keys %restore)
{
	my $db = "restored by $how";
	$node->safe_psql('postgres', qq{CREATE DATABASE "$db" TEMPLATE template0});
	# Nobody tells the sweeper of INSERTs: it finds what they brought when it reads the table again, which is not left to
	# its own time here. Of COPY it is told.
	$node->safe_psql('postgres', qq{ALTER DATABASE "$db" SET pg_lease.test_points = 'rescan-often'}) if $how =~ /^inserts/;
	$node->safe_psql('postgres', q{SELECT lease.acquire('brief', 'ann', '3 s')});
	$restore{$how}->($db);
	is(value($node, $leases, $db), $before, "$how: every key is what it was");
	is(value($node, q{SELECT acquired, epoch FROM lease.acquire('many', 'bob', '1 hour')}, $db), 't|43', "$how: epochs go on");
	is(value($node, q{SELECT acquired, epoch FROM lease.acquire('lapsed', 'bob', '1 hour')}, $db), 't|2', "$how: after a lapse, too");
	is(value($node, q{SELECT status FROM lease.renew('held', 'ann', 1, '1 hour')}, $db), 'ok', "$how: a holder goes on");
	is(value($node, q{SELECT acquired FROM lease.acquire('held', 'bob', '1 hour')}, $db), 'f', "$how: and nobody else gets it");
	ok($node->poll_query_until($db, q{SELECT state = 'l' FROM lease.entry WHERE key = 'brief'}), "$how: what is over is swept");
}

# A copy of the database is another database.
$node->safe_psql('postgres', 'CREATE DATABASE copied TEMPLATE "restored by plain"');
is(value($node, q{SELECT acquired, epoch FROM lease.acquire('many', 'bob', '1 hour')}, 'copied'), 't|44', 'CREATE DATABASE TEMPLATE: epochs go on');

# The whole server, into another one.
$node->command_ok([ 'pg_dumpall', '-f', "$dir/all.sql" ], 'pg_dumpall');
my $other = lease_cluster('dump_other', extension => 0);
$other->command_ok([ 'psql', '-Xq', '-d', 'postgres', '-f', "$dir/all.sql" ], 'restored into another server');
row_is($other, q{SELECT key, state, owner, epoch FROM lease.leases WHERE key <> 'brief' ORDER BY key}, value($node, q{SELECT key, state, owner, epoch FROM lease.leases WHERE key <> 'brief' ORDER BY key}), 'every key with its state and epoch');
row_is($other, q{SELECT acquired, epoch FROM lease.acquire('many', 'bob', '1 hour')}, 't|43', 'epochs go on there');
$_->stop foreach $node, $other;

done_testing();
