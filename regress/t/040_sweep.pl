# The sweeper: a lease that is over is written down as lapsed without anybody touching it, its first waiter is woken, and whether a
# lapse was written down yet makes no difference to any caller. What it cannot have at once it comes back for.
# Proves: I1, I2, I4, I5, I8, I10, D4, A1, A2, failure row "Holder hangs / network partitions (session alive)"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

my $node = lease_cluster('sweep');
my ($a, $b) = map { session($node) } 1 .. 2;

# The table itself, as no function shows it.
sub row_of
{
	my ($key) = @_;
	return "SELECT concat_ws(' ', state, owner, epoch) FROM lease.entry WHERE key = '$key'";
}

sub swept
{
	my ($where, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($node->poll_query_until('postgres', "SELECT count(*) = 0 FROM lease.entry WHERE state = 'h' AND $where"), $name);
}

$node->poll_query_until('postgres', q{SELECT status = 'running' FROM lease.sweepers WHERE database = 'postgres'}) or die 'no sweeper';

# --- A lease ends: the row says so, and nothing else about it changed.
$a->value(q{SELECT lease.acquire('k', 'ann', '3 s', NULL, '"here"')});
my $expires_at = $a->value(q{SELECT expires_at FROM lease.entry WHERE key = 'k'});
row_is($node, row_of('k'), 'h ann 1', 'held');
row_is($node, q{SELECT count(*) FROM lease.entry WHERE key = 'k' AND state <> 'h' AND lease.now() < expires_at}, '0', 'not swept before its expiry (I1)');
swept("key = 'k'", 'swept');
row_is($node, row_of('k'), 'l ann 1', 'with its last holder and its epoch (I2)');
row_is($node, q{SELECT expires_at, payload IS NULL FROM lease.entry WHERE key = 'k'}, "$expires_at|t", 'unowned since its expiry, publishing nothing');
row_is($node, q{SELECT next_deadline IS NULL, leases, last_error IS NULL FROM lease.sweepers WHERE database = 'postgres'}, 't|0|t', 'the sweeper has nothing left to do');

# --- Renewals move the end, in both directions.
$a->value(q{SELECT lease.acquire('longer', 'ann', '1 s'), lease.acquire('shorter', 'ann', '1 hour')});
$a->answers(q{SELECT status FROM lease.renew('longer', 'ann', 1, '1 hour')}, 'ok', 'prolonged');
$a->answers(q{SELECT status FROM lease.renew('shorter', 'ann', 1, '500 ms')}, 'ok', 'shortened');
swept("key = 'shorter'", 'a shortened lease is swept at its new end');
$a->value('SELECT pg_sleep(1)');
row_is($node, row_of('longer'), 'h ann 1', 'a prolonged one is not, at its old one (I8)');
row_is($node, q{SELECT next_deadline = (SELECT expires_at FROM lease.entry WHERE key = 'longer') FROM lease.sweepers WHERE database = 'postgres'}, 't', 'the sweeper has found its new one');
$a->value(q{SELECT lease.release('longer', 'ann', 1)});

# --- Swept or not, the same answers. The sweeper stands still for the second half.
my @calls = (
	[ q{SELECT state, owner, epoch, expires_at, remaining, payload, in_flight FROM lease.inspect(%s)}, 'lapsed||1||||f' ],
	[ q{SELECT state, owner, epoch, remaining FROM lease.leases WHERE key = %s}, 'lapsed||1|' ],
	[ q{SELECT status FROM lease.renew(%s, 'ann', 1, '1 s')}, 'lapsed' ],
	[ q{SELECT status FROM lease.renew(%s, 'ann', 7, '1 s')}, 'lapsed' ],
	[ q{SELECT status FROM lease.release(%s, 'ann', 1)}, 'lapsed' ],
	[ q{SELECT status FROM lease.renew(%s, 'bob', 1, '1 s')}, 'not_owner' ],
	[ q{SELECT status FROM lease.release(%s, 'bob', 1)}, 'not_owner' ],
	[ q{SELECT acquired, epoch FROM lease.acquire(%s, 'bob', '1 hour')}, 't|2' ]);
my $pid = value($node, q{SELECT pid FROM lease.sweepers WHERE database = 'postgres'});
foreach my $eager (1, 0)
{
	my $key = $eager ? 'eager' : 'lazy';
	kill 'STOP', $pid unless $eager;
	$a->value("SELECT lease.acquire('$key', 'ann', '800 ms')");
	$eager ? swept("key = 'eager'", 'swept') : $a->value('SELECT pg_sleep(1)');
	row_is($node, row_of($key), $eager ? 'l ann 1' : 'h ann 1', "$key: the row");
	foreach my $call (@calls) { $a->answers(sprintf($call->[0], "'$key'"), $call->[1], "$key: $call->[0]"); }
}
kill 'CONT', $pid;

# --- Waiters: the first gets the key when the lease is over, never before.
$a->value(q{SELECT lease.acquire('waited', 'ann', '3 s')});
$expires_at = $a->value(q{SELECT expires_at FROM lease.entry WHERE key = 'waited'});
$b->send(q{SELECT acquired, epoch, lease.now() >= '} . $expires_at . q{' FROM lease.acquire('waited', 'bob', '1 hour', '1 min')});
wait_for_wait($node, $b);
$b->answers(undef, 't|2|t', 'a waiter gets the key at the end of the lease (I5, A2)');

# --- Claimed and locked rows are left alone, the others are not, and they are come back for.
kill 'STOP', $pid;
$a->value(q{SELECT lease.acquire('claimed', 'ann', '1 s'), lease.acquire('locked', 'ann', '1 s'), lease.acquire('free 1', 'ann', '1 s'), lease.acquire('free 2', 'ann', '1 s')});
$a->value(q{BEGIN; SELECT 1 FROM lease.entry WHERE key = 'locked' FOR UPDATE; SELECT pg_sleep(1.1)});
$b->value(q{BEGIN; SELECT lease.acquire('claimed', 'bob', '1 hour')});
kill 'CONT', $pid;
swept("key LIKE 'free%'", 'the others are swept beside them');
row_is($node, row_of($_), 'h ann 1', "the $_ one is not") foreach ('claimed', 'locked');
$_->value('ROLLBACK') foreach ($a, $b);
swept("key IN ('claimed', 'locked')", 'afterwards they are');
row_is($node, row_of($_), 'l ann 1', "$_: as any other") foreach ('claimed', 'locked');
row_is($node, q{SELECT pid FROM lease.sweepers WHERE database = 'postgres'}, $pid, 'the sweeper took no harm');

# --- Batches.
$node->append_conf('postgresql.conf', 'pg_lease.sweep_batch = 10');
$node->reload;
$node->safe_psql('postgres', 'SELECT lease.reset_stats()');
$a->value(q{SELECT count(*) FROM generate_series(1, 300) i, LATERAL lease.acquire('batch ' || i, 'ann', '2 s')});
swept("key LIKE 'batch%'", 'many at once');
row_is($node, q{SELECT lapses_swept = 300, sweep_rows >= 300, sweep_passes >= 30 FROM lease.stats}, 't|t|t', 'in transactions of sweep_batch rows');
row_is($node, 'SELECT ring_overflows, rescans FROM lease.stats', '0|0', 'of all of them the commit has told the sweeper');

# --- An error ends the sweeper; it comes back, and goes on when it can.
$a->value(q{SELECT lease.acquire('k', 'ann', '3 s'), lease.acquire('k2', 'ann', '3500 ms')});
my $log_at = -s $node->logfile;
$a->value(q{CREATE INDEX spoiler ON lease.entry ((key || owner))});
$node->wait_for_log(qr/table "lease.entry" is not as the extension made it/, $log_at);
ok($node->poll_query_until('postgres', q{SELECT status = 'restarting' AND last_error LIKE '%is not as the extension made it%' FROM lease.sweepers WHERE database = 'postgres'}), 'lease.sweepers tells of the error');
$a->value('SELECT pg_sleep(1)');
row_is($node, q{SELECT state_of('k'), state_of('k2')}, 'lapsed 2|lapsed 1', 'leases lapse all the same');
$a->value(q{DROP INDEX lease.spoiler});
swept("key LIKE 'k%'", 'sweeping goes on');
row_is($node, q{SELECT count(*) FROM lease.claims}, '0', 'and no claim is left');
cmp_ok(() = PostgreSQL::Test::Utils::slurp_file($node->logfile, $log_at) =~ /is not as the extension made it/g, '<', 20, 'the log was not flooded');

# --- One log line per lapse, swept or met.
$node->append_conf('postgresql.conf', 'pg_lease.log_lapses = on');
$node->reload;
$log_at = -s $node->logfile;
$pid = value($node, q{SELECT pid FROM lease.sweepers WHERE database = 'postgres'});
$a->value(q{SELECT lease.acquire('told', 'ann', '800 ms')});
$node->wait_for_log(qr/LOG:  lease of key "told" lapsed\n.*DETAIL:  It was held by "ann" with epoch 1\./, $log_at);
kill 'STOP', $pid;
$a->value(q{SELECT lease.acquire('met', 'ann', '500 ms')});
$a->value('SELECT pg_sleep(0.6)');
$a->answers(q{SELECT acquired FROM lease.acquire('met', 'bob', '1 hour')}, 't', 'met by a takeover');
kill 'CONT', $pid;
$node->wait_for_log(qr/LOG:  lease of key "met" lapsed\n/, $log_at);
$a->value('SELECT pg_sleep(0.5)');
my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile, $log_at);
is(scalar(() = $log =~ /lease of key "$_" lapsed/g), 1, "$_: one line") foreach ('told', 'met');

# --- REPEATABLE READ: a lapse that was written after the snapshot is a change, one that was not is none.
$pid = value($node, q{SELECT pid FROM lease.sweepers WHERE database = 'postgres'});
foreach my $eager (1, 0)
{
	my $key = $eager ? 'rr swept' : 'rr not swept';
	kill 'STOP', $pid unless $eager;
	$b->value("SELECT lease.acquire('$key', 'ann', '3 s')");
	$a->value("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT state_of('$key')");
	$eager ? swept("key = '$key'", 'swept after the snapshot') : $b->value('SELECT pg_sleep(3)');
	$a->answers("SELECT acquired FROM lease.acquire('$key', 'bob', '1 hour')", $eager ? '40001' : 't', "$key: acquired under a snapshot from before");
	$a->value('ROLLBACK');
}
kill 'CONT', $pid;

# --- What is set for the database does not get in its way.
$node->safe_psql('template1', "ALTER DATABASE postgres SET $_") foreach (
	'default_transaction_read_only = on', q{default_transaction_isolation = 'serializable'}, q{statement_timeout = '1ms'}, q{lock_timeout = '1ms'});
$a->value("SELECT pg_terminate_backend($pid)");
ok($node->poll_query_until('template1', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'pg_lease sweeper' AND pid <> $pid"), 'a new one');
$a->value(q{SELECT lease.acquire('settings', 'ann', '800 ms')});
$a->value(q{DO $$ BEGIN FOR i IN 1 .. 300 LOOP PERFORM pg_sleep(0.1); EXIT WHEN EXISTS (SELECT FROM lease.entry WHERE key = 'settings' AND state = 'l'); END LOOP; END $$});
$a->answers(q{SELECT state FROM lease.entry WHERE key = 'settings'}, 'l', 'sweeps in a database that is read-only and serializable by default');
$node->safe_psql('template1', 'ALTER DATABASE postgres RESET ALL');

# --- Idle: no transaction, no snapshot, less than one wake-up a second.
$node->poll_query_until('postgres', q{SELECT bool_and(state = 'idle') FROM pg_stat_activity WHERE backend_type LIKE 'pg_lease%'}) or die;
row_is($node, q{SELECT count(*), count(xact_start), count(backend_xmin), count(backend_xid) FROM pg_stat_activity WHERE backend_type LIKE 'pg_lease%'}, '2|0|0|0', 'both workers: no transaction, no snapshot');
SKIP:
{
	my @pids = split /\n/, value($node, q{SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'pg_lease%'});
	skip 'counts wake-ups in /proc', 1 unless -e "/proc/$pids[0]/status";
	my $switches = sub {
		my $sum = 0;
		foreach (@pids) { $sum += $1 if PostgreSQL::Test::Utils::slurp_file("/proc/$_/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m; }
		return $sum;
	};
	sleep 1;
	my $before = $switches->();
	sleep 5;
	cmp_ok($switches->() - $before, '<', 5 * @pids, 'less than one wake-up a second each');
}

$_->quit foreach ($a, $b);
$node->stop;
done_testing();
