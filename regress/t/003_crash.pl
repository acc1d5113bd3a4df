# Unclean ends: of the server, of a backend, of a session. Committed state stays, all else is as if it had not been.
# Proves: I1, I2, I5, I6, I9, D1, D2, D3, D4, R1, R3,
#   failure row "Server crash (unclean)", failure row "Client crashes mid-operation",
#   failure row "Holder session terminates (clean disconnect)", failure row "Holder hangs / network partitions (session alive)"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

# The WAL writer is not to flush by itself what a commit did not.
my $node = lease_cluster('crash', conf => "wal_writer_delay = 10s\nwal_writer_flush_after = 0\n");

# --- The server falls over right after the reply, synchronous_commit = off: what was told is kept.
my $epoch = 0;
foreach my $round (1 .. 3)
{
	my $session = session($node, setup => 'SET synchronous_commit = off');

	my $told = $session->value("SELECT epoch FROM lease.acquire('told', 'ann', '1 hour')");
	$node->stop('immediate');
	cmp_ok($told, '>', $epoch, "round $round: acquired with a greater epoch");
	$node->start;
	row_is($node, "SELECT state_of('told')", "held ann $told", "round $round: a told epoch survives the crash (D2)");

	$session = session($node, setup => 'SET synchronous_commit = off');
	$session->value("BEGIN; SELECT lease.renew('told', 'ann', $told, '2 hours'); COMMIT");
	$node->stop('immediate');
	$node->start;
	row_is($node, "SELECT remaining > '1 hour' FROM lease.inspect('told')", 't', "round $round: a renewal told survives the crash");

	$session = session($node, setup => 'SET synchronous_commit = off');
	$session->value("SELECT status FROM lease.release('told', 'ann', $told)");
	$node->stop('immediate');
	$node->start;
	row_is($node, "SELECT state_of('told')", 'free ' . ($told + 1), "round $round: a release told survives the crash");
	$epoch = $told + 1;
}
row_is($node, "SELECT acquired, epoch FROM lease.acquire('told', 'bob', '1 hour')", 't|' . ($epoch + 1), 'the next epoch is greater');

# The setting is the session's own again afterwards; without a lease change nothing is forced.
my $session = session($node, setup => 'SET synchronous_commit = off');
$session->answers("SELECT acquired FROM lease.acquire('setting', 'ann', '1 hour'); SHOW synchronous_commit", "t\noff", 'synchronous_commit is what it was');
$session->answers("BEGIN; SET LOCAL synchronous_commit = local; SELECT status FROM lease.renew('setting', 'ann', 1, '1 hour'); COMMIT; SHOW synchronous_commit",
	"ok\noff", 'SET LOCAL ends with its transaction');
$session->quit;

# --- What expires while the server is down after a crash.
$node->safe_psql('postgres', "SELECT lease.acquire('down', 'ann', '2 s')");
$node->stop('immediate');
sleep 2;
$node->start;
row_is($node, "SELECT acquired, epoch FROM lease.acquire('down', 'bob', '1 hour')", 't|2', 'expired while the server was down: had at the first call (D3, R1)');

# --- A backend is killed: crash restart. Claims go, leases stay, the lease clock runs on.
$node->safe_psql('postgres', "SELECT lease.acquire('held', 'ann', '1 hour')");
my $before = value($node, 'SELECT key, state, owner, epoch, expires_at FROM lease.leases ORDER BY key');
my $victim = session($node);
my $other = session($node);
$victim->value("BEGIN; SELECT lease.acquire('new', 'ann', '1 hour'); SELECT lease.release('held', 'ann', 1)");
$other->value("BEGIN; SELECT lease.acquire('other', 'ann', '1 hour')");
row_is($node, 'SELECT open_claims()', '3', 'three keys are in flight');
my $now = value($node, 'SELECT lease.now()');
my $started = value($node, 'SELECT pg_postmaster_start_time()');
my $log_at = -s $node->logfile;
kill 'KILL', $victim->pid;
$other->run('SELECT 1');    # ends when the connection does
$node->wait_for_log(qr/all server processes terminated; reinitializing/, $log_at);
$node->poll_query_until('postgres', undef, '') or die 'the server does not come back';
row_is($node, 'SELECT pg_postmaster_start_time()', $started, 'the postmaster is the same');
row_is($node, 'SELECT key, state, owner, epoch, expires_at FROM lease.leases ORDER BY key', $before, 'a backend killed: committed state as before (D1)');
row_is($node, 'SELECT open_claims()', '0', 'no claim is left (D4)');
row_is($node, "SELECT lease.now() > '$now' AND lease.now() < timestamptz '$now' + interval '10 min'", 't', 'lease time did not jump');
row_is($node, "SELECT acquired, epoch FROM lease.acquire('new', 'bob', '1 hour')", 't|1', 'its new key can be had at once');
row_is($node, "SELECT acquired FROM lease.acquire('held', 'bob', '1 hour')", 'f', 'the key it would have released is still held');
row_is($node, "SELECT status FROM lease.renew('held', 'ann', 1, '1 hour')", 'ok', 'by the holder of before');

# --- A session ends: its open transaction's change is undone at once, its committed lease stays to its expiry.
foreach my $how ('disconnect', 'client gone', 'terminated')
{
	my $key = "end by $how";
	my $holder = session($node);
	$holder->value("SELECT lease.acquire('$key', 'ann', '2 s')");
	$holder->value("BEGIN; SELECT lease.renew('$key', 'ann', 1, '1 hour'); SELECT lease.acquire('$key: new', 'ann', '1 hour')");
	if ($how eq 'disconnect') { $holder->quit; }
	elsif ($how eq 'client gone') { $holder->kill; }
	else { value($node, 'SELECT pg_terminate_backend(' . $holder->pid . ')'); }
	wait_until_gone($node, $holder->pid);
	row_is($node, 'SELECT open_claims()', '0', "$how: no claim is left");
	row_is($node, "SELECT acquired, epoch FROM lease.acquire('$key: new', 'bob', '1 hour')", 't|1', "$how: its uncommitted acquire frees the key at once");
	row_is($node, "SELECT acquired FROM lease.acquire('$key', 'bob', '1 hour')", 'f', "$how: its lease does not vanish with the session");
	$node->safe_psql('postgres', 'SELECT pg_sleep(2)');
	row_is($node, "SELECT acquired, epoch FROM lease.acquire('$key', 'bob', '1 hour')", 't|2', "$how: it lapses at its expiry");
	eval { $holder->quit };
}

# --- A backend that stands still, in the middle of a transaction: others go on at its deadline, it learns so when it goes on.
my $frozen = session($node);
$frozen->value("BEGIN; SELECT lease.acquire('frozen', 'ann', '2 s')");
kill 'STOP', $frozen->pid;
row_is($node, "SELECT acquired FROM lease.acquire('frozen', 'bob', '1 hour')", 'f', 'a stopped backend: denied before its deadline');
$node->safe_psql('postgres', 'SELECT pg_sleep(2)');
row_is($node, "SELECT acquired FROM lease.acquire('frozen', 'bob', '1 hour')", 't', 'a stopped backend: granted after it (I5)');
kill 'CONT', $frozen->pid;
$frozen->answers('COMMIT', 'LE001', 'it learns at its COMMIT');
row_is($node, "SELECT state, owner FROM lease.inspect('frozen')", 'held|bob', 'and changes nothing');
$frozen->quit;

# --- Everything again after one more crash: nothing was kept in memory only.
$before = value($node, 'SELECT key, state, owner, epoch, expires_at FROM lease.leases ORDER BY key');
$node->stop('immediate');
$node->start;
row_is($node, 'SELECT key, state, owner, epoch, expires_at FROM lease.leases ORDER BY key', $before, 'all keys are what they were after one more crash');
$node->stop;

done_testing();
