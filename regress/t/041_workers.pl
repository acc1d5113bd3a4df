# Launcher and sweeper are ended, killed, stopped, and there is no slot for them: leases lapse and waiters wake all the same, the
# workers come back, and nobody spins.
# Proves: I4, I5, D4, R3, failure row "Resource exhaustion" (worker slots), failure row "Server crash (unclean)"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

my $node = lease_cluster('workers', conf => "max_worker_processes = 4\n");

sub sweeper
{
	my ($dbname) = @_;
	$dbname //= 'postgres';
	$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM lease.sweepers WHERE database = '$dbname' AND status = 'running'")
	  or die "no sweeper in $dbname";
	return value($node, "SELECT pid FROM lease.sweepers WHERE database = '$dbname'");
}

sub launcher
{
	$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'pg_lease launcher'}) or die 'no launcher';
	return value($node, q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_lease launcher'});
}

# A lease that ends is swept.
sub sweeps
{
	my ($name, $dbname) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->safe_psql($dbname // 'postgres', q{SELECT lease.acquire('probe', 'ann', '600 ms')});
	return ok($node->poll_query_until($dbname // 'postgres', q{SELECT state = 'l' FROM lease.entry WHERE key = 'probe'}), $name);
}

sub is_alive { return kill 0, $_[0]; }

# --- Asked to end.
my ($launcher, $sweeper) = (launcher(), sweeper());
foreach my $function ('pg_terminate_backend', 'pg_cancel_backend')
{
	$node->safe_psql('postgres', "SELECT $function($sweeper)");
	$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $sweeper") or die;
	row_is($node, q{SELECT status, pid IS NULL FROM lease.sweepers WHERE database = 'postgres' AND pid IS DISTINCT FROM } . $sweeper, 'restarting|t', "$function: lease.sweepers tells why there is none")
	  if $function eq 'pg_terminate_backend';
	isnt(sweeper(), $sweeper, "$function: another sweeper comes");
	$sweeper = sweeper();
	sweeps("$function: and sweeps");
}
$node->safe_psql('postgres', "SELECT pg_terminate_backend($launcher)");
wait_until_gone($node, $launcher);
sweeps('without a launcher the sweeper goes on');
isnt(launcher(), $launcher, 'another launcher comes');
is(sweeper(), $sweeper, 'and leaves the sweeper where it is');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($sweeper)");
isnt(sweeper(), $sweeper, 'it keeps a sweeper running');
sweeps('which sweeps');

# --- Killed: PostgreSQL starts all its processes anew.
foreach my $which ('sweeper', 'launcher')
{
	my $pid = $which eq 'sweeper' ? sweeper() : launcher();
	my $log_at = -s $node->logfile;

	$node->safe_psql('postgres', q{SELECT lease.acquire('held', 'ann', '1 hour'), lease.acquire('over soon', 'ann', '800 ms')});
	my $epoch = value($node, q{SELECT epoch FROM lease.inspect('held')});
	kill 'KILL', $pid;
	$node->wait_for_log(qr/all server processes terminated; reinitializing/, $log_at);
	$node->poll_query_until('postgres', undef, '') or die 'the server does not come back';
	row_is($node, q{SELECT state_of('held')}, "held ann $epoch", "$which killed: a lease is still held (R3)");
	sweeper();
	ok($node->poll_query_until('postgres', q{SELECT state = 'l' FROM lease.entry WHERE key = 'over soon'}), "$which killed: what lapsed meanwhile is swept");
	sweeps("$which killed: sweeping goes on");
}

# --- Stopped: nothing depends on it.
$sweeper = sweeper();
my ($a, $b) = map { session($node) } 1 .. 2;
$node->safe_psql('postgres', 'SELECT lease.reset_stats()');
kill 'STOP', $sweeper;
$a->value(q{SELECT lease.acquire('k', 'ann', '3 s')});
my $expires_at = $a->value(q{SELECT expires_at FROM lease.entry WHERE key = 'k'});
$b->send("SELECT acquired, epoch, lease.now() >= '$expires_at' FROM lease.acquire('k', 'bob', '1 hour', '1 min')");
wait_for_wait($node, $b);
$b->answers(undef, 't|2|t', 'stopped: a waiter gets the key at the end of the lease (I5)');
$a->answers(q{SELECT status FROM lease.renew('k', 'ann', 1, '1 s')}, 'not_owner', 'stopped: its former holder is out (I4)');
$a->value(q{SELECT lease.acquire('gone', 'ann', '500 ms')});
$a->value('SELECT pg_sleep(0.6)');
$a->answers(q{SELECT state, state_of('gone') FROM lease.entry WHERE key = 'gone'}, 'h|lapsed 1', 'stopped: a lease lapses unwritten');
# more than the feed can hold
$a->answers(q{SELECT count(*) FROM generate_series(1, 6000) i, LATERAL lease.acquire('many ' || i, 'ann', '5 s') WHERE acquired}, '6000', 'stopped: grants wait for nobody');
row_is($node, 'SELECT ring_overflows FROM lease.stats', '0', 'nobody has noticed yet');
kill 'CONT', $sweeper;
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM lease.entry WHERE state = 'h' AND (key LIKE 'many%' OR key = 'gone')}), 'continued: all of them are swept');
row_is($node, 'SELECT ring_overflows >= 1, rescans >= 1, lapses_swept >= 6001 FROM lease.stats', 't|t|t', 'it found that it was outrun, and read the table');
is(sweeper(), $sweeper, 'it is the same sweeper');
$_->quit foreach ($a, $b);

# --- Slots for two sweepers (PostgreSQL's launcher of logical replication and ours have the others), five databases.
my $log_at = -s $node->logfile;
my @others = map { "other$_" } 1 .. 4;
foreach my $dbname (@others)
{
	$node->safe_psql('postgres', "CREATE DATABASE $dbname TEMPLATE template0");
	create_lease($node, $dbname);
	$node->safe_psql($dbname, q{SELECT lease.acquire('k', 'ann', '800 ms')});
}
ok($node->poll_query_until('postgres', q{SELECT count(*) FILTER (WHERE status = 'running') = 2 AND count(*) FILTER (WHERE status = 'no worker slot') = 3 FROM lease.sweepers}), 'five databases, two sweepers: lease.sweepers tells why');
sleep 1;
foreach my $dbname (@others)
{
	row_is_in($dbname, q{SELECT status FROM lease.renew('k', 'ann', 1, '1 s')}, 'lapsed', "$dbname: leases lapse");
	row_is_in($dbname, q{SELECT acquired, epoch FROM lease.acquire('k', 'bob', '800 ms')}, 't|2', "$dbname: and are taken over");
}
sleep 2;
my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile, $log_at);
is(scalar(() = $log =~ /no background worker slot is free/g), 1, 'one line in the log');
like($log, qr/HINT:  You might need to increase max_worker_processes/, 'with a hint');
my @waiting = split /\n/, value($node, q{SELECT database FROM lease.sweepers WHERE status = 'no worker slot' ORDER BY 1});
my ($running) = split /\n/, value($node, q{SELECT database FROM lease.sweepers WHERE status = 'running' AND database <> 'postgres'});
$node->safe_psql($running, 'DROP EXTENSION pg_lease CASCADE');
ok($node->poll_query_until('postgres', q{SELECT count(*) FILTER (WHERE status = 'running') = 2 AND count(*) FILTER (WHERE status = 'no worker slot') = 2 FROM lease.sweepers}), 'a slot is free: another database has a sweeper');
my ($served) = grep { value($node, "SELECT status FROM lease.sweepers WHERE database = '$_'") eq 'running' } @waiting;
ok($node->poll_query_until($served, q{SELECT state = 'l' FROM lease.entry WHERE key = 'k'}), "which sweeps $served");

sub row_is_in
{
	my ($dbname, $sql, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(value($node, $sql, $dbname), $expected, $name);
}

# --- After a start nobody knows where leases are used, and there is no slot to look: none of those databases is shown as if they
# were, until somebody calls.
$node->safe_psql($running, 'CREATE EXTENSION pg_lease');
$log_at = -s $node->logfile;
$node->restart;
$node->poll_query_until('postgres', q{SELECT count(*) = 2 FROM lease.sweepers WHERE status = 'running'}) or die 'no sweepers';
$node->wait_for_log(qr/no background worker slot is free to look for leases in database/, $log_at);
row_is($node, q{SELECT count(*), count(*) FILTER (WHERE status = 'running') FROM lease.sweepers}, '2|2', 'no slot to look into others: they are not shown');
my ($silent) = grep { value($node, "SELECT count(*) FROM lease.sweepers WHERE database = '$_'") eq '0' } @others;
row_is_in($silent, q{SELECT state FROM lease.inspect('nothing')}, 'free', 'a call in one of them');
ok($node->poll_query_until('postgres', "SELECT status = 'no worker slot' FROM lease.sweepers WHERE database = '$silent'"), 'and it is shown, waiting for a slot');
$log = PostgreSQL::Test::Utils::slurp_file($node->logfile, $log_at);
is(scalar(() = $log =~ /no background worker slot is free/g), 1, 'one line in the log for all of it');

# --- Nobody spun.
$log = PostgreSQL::Test::Utils::slurp_file($node->logfile);
cmp_ok(scalar(() = $log =~ /pg_lease (?:sweeper|launcher).*exited with exit code/g), '<', 15, 'workers ended as often as they were made to');

$node->stop;
done_testing();
