# The wall clock is stepped while leases are held, sessions wait and the sweeper sleeps: nothing lapses early or late, every wait ends
# on time, and the log has one line about it. And the whole server stands still for longer than a ttl.
# Proves: I1, I4, I5, I7, D3, R1, A1, A2, failure row "Clock discontinuity on the server"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use ShiftedClock;
use Test::More;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

if ($^O ne 'linux')
{
	# how a library is put between, and which clocks there are, is this system's own
	plan skip_all => 'shifts the wall clock by means of Linux';
}

my $clock = ShiftedClock->new;
my $node = lease_cluster('clock_workers', start => 0);
$clock->run($node, 'start');
create_lease($node);
$node->poll_query_until('postgres', q{SELECT status = 'running' FROM lease.sweepers WHERE database = 'postgres'}) or die 'no sweeper';
my ($a, $b, $c) = map { session($node) } 1 .. 3;
my $log_at = -s $node->logfile;

foreach my $hours (1, -1)
{
	my $way = $hours > 0 ? 'ahead' : 'back';

	# B waits for a lease that ends, C for one that does not; D's is watched by the sweeper only
	$clock->set(0);
	$a->value(q{SELECT lease.acquire('ends', 'ann', '4 s'), lease.acquire('stays', 'ann', '10 min'), lease.acquire('unwatched', 'ann', '4 s')});
	my $expires_at = $a->value(q{SELECT expires_at FROM lease.inspect('ends')});
	my $epoch = $a->value(q{SELECT epoch FROM lease.inspect('ends')});
	my $began = clock_gettime(CLOCK_MONOTONIC);
	$b->send("SELECT acquired, epoch, lease.now() >= '$expires_at' FROM lease.acquire('ends', 'bob', '1 hour', '1 min')");
	$c->send(q{SELECT acquired FROM lease.acquire('stays', 'bob', '1 hour', '5 s')});
	wait_for_wait($node, $b, $c);
	$clock->set($hours);
	row_is($node, "SELECT state_of('stays')", 'held ann ' . value($node, q{SELECT epoch FROM lease.inspect('stays')}), "$way: a held lease stays held");
	row_is($node, q{SELECT count(*) FROM lease.entry WHERE key = 'unwatched' AND state <> 'h' AND lease.now() < expires_at}, '0', "$way: nothing lapses early (I1)");

	$b->answers(undef, 't|' . ($epoch + 1) . '|t', "$way: a waiter gets the key at the end of the lease, not before");
	cmp_ok(clock_gettime(CLOCK_MONOTONIC) - $began, '<', 14, "$way: nor much later (A2)");
	$a->answers(q{SELECT status FROM lease.renew('ends', 'ann', } . $epoch . q{, '1 s')}, 'not_owner', "$way: its former holder is out (A1)");
	my $answer = $c->answer;
	is($answer->{state}, '57014', "$way: a wait ends by its bound");
	my $waited = clock_gettime(CLOCK_MONOTONIC) - $began;
	cmp_ok($waited, '>=', 5, "$way: not before it");
	cmp_ok($waited, '<', 15, "$way: nor much later");
	ok($node->poll_query_until('postgres', q{SELECT state = 'l' FROM lease.entry WHERE key = 'unwatched'}), "$way: the sweeper sweeps");
	cmp_ok(clock_gettime(CLOCK_MONOTONIC) - $began, '<', 20, "$way: on time");
	$a->answers(q{SELECT status FROM lease.renew('stays', 'ann', } . $a->value(q{SELECT epoch FROM lease.inspect('stays')}) . q{, '10 min')}, 'ok', "$way: a holder renews");
	row_is($node, "SELECT round(extract(epoch FROM difference) / 60) FROM lease.clock", -60 * $hours, "$way: lease.clock shows the difference");
	$b->value(sprintf q{SELECT lease.release('ends', 'bob', %d)}, $epoch + 1);
	$a->value(sprintf q{SELECT lease.release('stays', 'ann', %d)}, $a->value(q{SELECT epoch FROM lease.inspect('stays')}));
}

# One line in the log, though the difference has lasted and changed.
$node->wait_for_log(qr/LOG:  the lease clock is 3[56]\d\d\.\d+ s (?:ahead of|behind) the wall clock/, $log_at);
sleep 11;
my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile, $log_at);
is(scalar(() = $log =~ /the lease clock is/g), 1, 'one line in the log');
$clock->set(0);

# --- The whole server stands still for longer than a ttl. What was over meanwhile is over for everybody at once.
$a->value(q{SELECT lease.acquire('frozen', 'ann', '3 s'), lease.acquire('longer', 'ann', '10 min')});
my $epoch = $a->value(q{SELECT epoch FROM lease.inspect('frozen')});
$b->send(q{SELECT acquired, epoch FROM lease.acquire('frozen', 'bob', '1 hour', '1 min')});
wait_for_wait($node, $b);
my $postmaster = (split /\n/, PostgreSQL::Test::Utils::slurp_file($node->data_dir . '/postmaster.pid'))[0];
# (others' processes may end meanwhile)
my @processes = ($postmaster, grep { (eval { PostgreSQL::Test::Utils::slurp_file("/proc/$_/stat") } // '') =~ /\) \w $postmaster / } map { m,/proc/(\d+), } glob '/proc/[0-9]*');
kill 'STOP', @processes;
sleep 4;
kill 'CONT', @processes;
$a->answers("SELECT status FROM lease.renew('frozen', 'ann', $epoch, '1 hour')", 'not_owner', 'stopped and continued: its holder is out')
  if $b->answers(undef, 't|' . ($epoch + 1), 'stopped and continued: the waiter has the key');
$a->answers(q{SELECT status FROM lease.renew('longer', 'ann', 1, '10 min')}, 'ok', 'stopped and continued: a longer lease lives on');

$_->quit foreach ($a, $b, $c);

# --- The server starts anew with the clock set back: a lease ends one ttl after the start at most, and stays ended.
$node->safe_psql('postgres', q{SELECT lease.acquire('future', 'ann', '3 s')});
$clock->set(-1);
$clock->run($node, 'restart');
my $started = value($node, 'SELECT clock_base FROM (SELECT lease.acquire(\'mark\', \'ann\', \'1 hour\')) a, LATERAL (SELECT lease.now() AS clock_base) b');
row_is($node, q{SELECT state_of('future')}, 'held ann 1', 'granted in what is now the future: held');
ok($node->poll_query_until('postgres', q{SELECT state = 'l' FROM lease.entry WHERE key = 'future'}), 'swept');
row_is($node, "SELECT expires_at <= timestamptz '$started' + interval '3 s' FROM lease.entry WHERE key = 'future'", 't', 'at the end of one ttl from the start (D3)');
$clock->set(-2);
$clock->run($node, 'restart');
row_is($node, q{SELECT state_of('future'), status FROM lease.renew('future', 'ann', 1, '1 hour')}, 'lapsed 1|lapsed', 'and it stays ended, over another start with the clock set back');
$clock->run($node, 'stop');
done_testing();
