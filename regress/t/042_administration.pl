# Commands that need a database to itself, and what the table's owner does to it, with leases held, sessions waiting and the sweeper
# connected: each is done well inside 20 s or fails with PostgreSQL's own error, and sweeping goes on.
# Proves: I1, I5, I9, D1, R3, failure row "Holder session terminates (clean disconnect)" (with its database)

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;
use Time::HiRes 'time';

my $node = lease_cluster('administration');
my $admin = session($node);

sub sweeper
{
	my ($dbname) = @_;
	$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM lease.sweepers WHERE database = '$dbname' AND status = 'running'")
	  or die "no sweeper in $dbname";
	return value($node, "SELECT pid FROM lease.sweepers WHERE database = '$dbname'");
}

# A database with a held lease, one that is over soon, and a sweeper.
sub database
{
	my ($dbname) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $dbname TEMPLATE template0");
	create_lease($node, $dbname);
	$node->safe_psql($dbname, q{SELECT lease.acquire('held', 'ann', '1 hour')});
	sweeper($dbname);
	return $dbname;
}

sub sweeps
{
	my ($dbname, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->safe_psql($dbname, q{SELECT lease.acquire('probe', 'ann', '600 ms')});
	return ok($node->poll_query_until($dbname, q{SELECT state = 'l' FROM lease.entry WHERE key = 'probe'}), $name);
}

# The command answers so, in time.
sub quick
{
	my ($session, $sql, $expected, $name, $at_least) = @_;
	my $began = time;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$session->answers($sql, $expected, $name);
	return cmp_ok(time - $began, '<', 20, "$name: in time");
}

sub backends_in
{
	my ($dbname) = @_;
	return value($node, "SELECT count(*) FROM pg_stat_activity WHERE datname = '$dbname'");
}

# --- CREATE DATABASE ... TEMPLATE: the copy has the leases and, once it is used, a sweeper of its own.
database('source');
quick($admin, 'CREATE DATABASE copy TEMPLATE source', '', 'CREATE DATABASE ... TEMPLATE');
row_is_in('copy', q{SELECT state_of('held')}, 'held ann 1', 'the copy has the leases');
row_is_in('copy', q{SELECT acquired, epoch FROM lease.acquire('held', 'ann', '1 hour')}, 't|2', 'and they are its own');
row_is_in('source', q{SELECT state_of('held')}, 'held ann 1', 'the template keeps its own');
sweeps($_, "$_ is swept") foreach ('source', 'copy');
quick($admin, 'CREATE DATABASE source TEMPLATE copy', '42P04', 'one that fails');
sweeps('copy', 'and its template is swept afterwards');

create_lease($node, 'template1');
sweeper('template1');
quick($admin, 'CREATE DATABASE from_template1', '', 'CREATE DATABASE with a sweeper in template1');
row_is_in('from_template1', q{SELECT acquired, epoch FROM lease.acquire('k', 'ann', '1 hour')}, 't|1', 'the new one has leases');
sweeps($_, "$_ is swept") foreach ('from_template1', 'template1');
$node->safe_psql('template1', 'DROP FUNCTION state_of; DROP EXTENSION pg_lease');

# --- ALTER DATABASE.
quick($admin, 'ALTER DATABASE copy RENAME TO renamed', '', 'ALTER DATABASE ... RENAME');
sweeps('renamed', 'is swept under its new name');
row_is($node, q{SELECT count(*) FROM lease.sweepers WHERE database IN ('copy', 'renamed')}, '1', 'which lease.sweepers has, too');
quick($admin, 'BEGIN; ALTER DATABASE renamed RENAME TO other', '', 'in a transaction');
ok($node->poll_query_until('postgres', q{SELECT status = 'held off' FROM lease.sweepers WHERE database = 'renamed'}), 'while it is open the sweeper keeps out');
quick($admin, 'ROLLBACK', '', 'rolled back');
sweeps('renamed', 'is swept again');
my $dir = PostgreSQL::Test::Utils::tempdir();
chmod 0755, $dir;
$admin->value("CREATE TABLESPACE elsewhere LOCATION '$dir'");
quick($admin, 'ALTER DATABASE renamed SET TABLESPACE elsewhere', '', 'ALTER DATABASE ... SET TABLESPACE');
sweeps('renamed', 'is swept in its new place');
row_is_in('renamed', q{SELECT state_of('held')}, 'held ann 2', 'and has its leases');
quick($admin, 'ALTER DATABASE renamed SET TABLESPACE nowhere', '42704', 'one that fails');
sweeps('renamed', 'is swept afterwards');

# --- A database that does not let anybody in: its sessions work on, and nobody knocks at its door for ever.
{
	my $inside = session($node, dbname => 'renamed');
	$admin->value('ALTER DATABASE renamed ALLOW_CONNECTIONS false');
	$admin->value(q{SELECT pg_terminate_backend(pid) FROM lease.sweepers WHERE database = 'renamed'});
	my $log_at = -s $node->logfile;
	$inside->answers(qq{SELECT count(*) FROM generate_series(1, 50) i, LATERAL lease.acquire('inside ' || i, 'ann', '1 hour') WHERE acquired}, '50', 'closed to connections: leases go on');
	ok($node->poll_query_until('postgres', q{SELECT status = 'restarting' FROM lease.sweepers WHERE database = 'renamed'}), 'without a sweeper');
	sleep 2;
	unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile, $log_at), qr/FATAL/, 'and without a noise');
	$admin->value('ALTER DATABASE renamed ALLOW_CONNECTIONS true');
	$inside->quit;
	sweeps('renamed', 'open again: swept, after a while');
}

# --- DROP DATABASE.
quick($admin, 'DROP DATABASE renamed', '', 'DROP DATABASE');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM lease.sweepers WHERE database = 'renamed' OR database IS NULL}), 'nothing stays behind of it');
$node->safe_psql('postgres', 'CREATE DATABASE bystander TEMPLATE template0');
quick($admin, 'DROP DATABASE bystander', '', 'of a database without leases');
my $inside = session($node, dbname => 'source');
$inside->value(q{SELECT lease.acquire('inside', 'ann', '1 hour')});
quick($admin, 'DROP DATABASE source', '55006', 'one that fails, after the 5 s that PostgreSQL tries');
$inside->answers(q{SELECT status FROM lease.renew('inside', 'ann', 1, '1 hour')}, 'ok', 'the database goes on');
sweeps('source', 'and is swept');
my $waiter = session($node, dbname => 'source');
$waiter->send(q{SELECT lease.acquire('held', 'bob', '1 hour', '1 hour')});
wait_for_wait($node, $waiter);
quick($admin, 'DROP DATABASE source WITH (FORCE)', '', 'WITH (FORCE), with a session waiting');
is($waiter->answer->{state}, '57P01', 'whose wait ends');
$inside->run('SELECT 1');
$_->quit foreach ($waiter, $inside);
quick($admin, 'DROP DATABASE nosuch', '3D000', 'of none');
row_is($node, 'SELECT count(*) FROM lease.claims', '0', 'no claim is left');

# --- DROP EXTENSION, and again in the same session.
database('reborn');
my $session = session($node, dbname => 'reborn');
$waiter = session($node, dbname => 'reborn');
$waiter->send(q{SELECT lease.acquire('held', 'bob', '1 hour', '1 hour')});
wait_for_wait($node, $waiter);
quick($session, 'DROP EXTENSION pg_lease CASCADE', '', 'DROP EXTENSION');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'reborn' AND backend_type = 'pg_lease sweeper'}), 'the sweeper leaves');
$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $waiter->pid . ')');
isnt($waiter->answer->{state}, '00000', 'a session that waits gets an error, at the latest when cancelled');
quick($session, 'CREATE EXTENSION pg_lease', '', 'CREATE EXTENSION in the same session');
$session->answers(q{SELECT acquired, epoch FROM lease.acquire('held', 'bob', '1 hour')}, 't|1', 'a new table');
sweeps('reborn', 'is swept');
$waiter->answers(q{SELECT acquired FROM lease.acquire('held', 'ann', '1 hour')}, 'f', 'a session of before works with it');
$waiter->quit;
$session->value(q{DROP EXTENSION pg_lease});
$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM lease.sweepers WHERE database = 'reborn'}) or die;
$session->value(q{BEGIN; CREATE EXTENSION pg_lease; SELECT lease.acquire('k', 'ann', '1 hour'); ROLLBACK});
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM lease.sweepers WHERE database = 'reborn'}), 'CREATE EXTENSION rolled back: no sweeper');
row_is($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_lease sweeper' AND datname = 'reborn'}, '0', 'nor a process');
$session->value(q{CREATE EXTENSION pg_lease});
sweeper('reborn');
sweeps('reborn', 'CREATE EXTENSION once more: swept');
$session->value(q{BEGIN; DROP EXTENSION pg_lease; ROLLBACK});
sweeps('reborn', 'DROP EXTENSION rolled back: still swept');
$session->value(q{DROP EXTENSION pg_lease; CREATE EXTENSION pg_lease; SELECT lease.acquire('k', 'ann', '1 hour')});
sweeps('reborn', 'dropped and created at once: swept');
$session->quit;

# --- The owner's commands on the table, with a lease held and a session waiting for it.
my ($holder, $queued) = map { session($node) } 1 .. 2;
foreach my $command (
	'REINDEX TABLE lease.entry', 'REINDEX INDEX lease.entry_pkey', 'REINDEX TABLE CONCURRENTLY lease.entry', 'VACUUM lease.entry',
	'VACUUM FULL lease.entry', 'CLUSTER lease.entry USING entry_pkey', 'ANALYZE lease.entry', 'REINDEX SCHEMA lease')
{
	# which waits for every statement that began before it, as everywhere
	my $waits_for_statements = $command =~ /CONCURRENTLY/;
	my $epoch = $holder->value(q{SELECT epoch FROM lease.acquire('k', 'ann', '1 hour')});
	my $wait = sub {
		$queued->send(q{SELECT acquired, epoch FROM lease.acquire('k', 'bob', '1 hour', '1 min')});
		wait_for_wait($node, $queued);
	};
	$wait->() unless $waits_for_statements;
	quick($admin, $command, '', $command);
	$wait->() if $waits_for_statements;
	$holder->answers("SELECT status FROM lease.renew('k', 'ann', $epoch, '1 hour')", 'ok', "$command: the holder renews");
	$holder->answers("SELECT status FROM lease.release('k', 'ann', $epoch)", 'ok', "$command: and releases");
	$queued->answers(undef, 't|' . ($epoch + 2), "$command: the waiter gets the key");
	$queued->value(sprintf q{SELECT lease.release('k', 'bob', %d)}, $epoch + 2);
	sweeps('postgres', "$command: sweeping goes on");
}
$holder->value(q{SELECT lease.acquire('k', 'ann', '4 s'), lease.acquire('short', 'ann', '800 ms')});
$queued->send(q{SELECT acquired FROM lease.acquire('k', 'bob', '1 hour', '1 min')});
wait_for_wait($node, $queued);
quick($admin, 'TRUNCATE lease.entry', '', 'TRUNCATE');
$queued->answers(undef, 't', 'TRUNCATE: the waiter gets the key');
$holder->answers(q{SELECT status FROM lease.renew('k', 'ann', 1, '1 hour')}, 'not_owner', 'TRUNCATE: whoever held it does not any more');
sweeps('postgres', 'TRUNCATE: sweeping goes on');
# the sweeper meets the table locked in the middle of its work
$admin->value('BEGIN; LOCK TABLE lease.entry');
$admin->value('SELECT pg_sleep(0.3)');
$admin->value('COMMIT');
sweeps('postgres', 'LOCK TABLE: sweeping goes on');
# rows that come by COPY, as from a dump of data only
$admin->value(q{SELECT lease.acquire('copied', 'ann', '3 s')});
my $file = "$dir/entry";
$admin->value("COPY lease.entry TO '$file'; TRUNCATE lease.entry; COPY lease.entry FROM '$file'");
ok($node->poll_query_until('postgres', q{SELECT state = 'l' FROM lease.entry WHERE key = 'copied'}), 'COPY FROM: what it brought is swept');

# --- Reload, and shutdown with waiters.
my $pid = sweeper('postgres');
$node->reload;
sweeps('postgres', 'reload: sweeping goes on');
is(sweeper('postgres'), $pid, 'in the same process');
foreach my $mode ('fast', 'smart')
{
	my $log_at = -s $node->logfile;
	$_->quit foreach ($holder, $queued, $admin);
	($holder, $queued, $admin) = map { session($node) } 1 .. 3;
	$holder->value(q{SELECT lease.acquire('last', 'ann', '1 hour')});
	if ($mode eq 'fast')
	{
		$queued->send(q{SELECT lease.acquire('last', 'bob', '1 hour', '1 min')});
		wait_for_wait($node, $queued);
	}
	else { $_->quit foreach ($holder, $queued, $admin); }
	my $began = time;
	$node->stop($mode);
	cmp_ok(time - $began, '<', 20, "$mode shutdown: in time");
	is($queued->answer->{state}, '57P01', 'the wait ends') if $mode eq 'fast';
	my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile, $log_at);
	unlike($log, qr/FATAL:.*background worker|received signal|PANIC/, "$mode shutdown: the workers go quietly");
	$node->start;
	row_is($node, q{SELECT state_of('last') LIKE 'held ann %'}, 't', "$mode shutdown: leases are as they were");
	sweeps('postgres', "$mode shutdown: swept after the start");
}
$node->stop;

sub row_is_in
{
	my ($dbname, $sql, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(value($node, $sql, $dbname), $expected, $name);
}

# DROP DATABASE of one with a sweeper does not cost the 5 s that PostgreSQL would try for.
my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile);
unlike($log, qr/PANIC|was terminated by signal|database ".*" does not exist.*\n.*pg_lease/, 'nothing fell over');
done_testing();
