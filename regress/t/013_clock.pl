# The wall clock is stepped: while the server runs nothing changes; at the next start lease time follows, and no lease outlives its
# ttl by it. The server's wall clock is shifted by lib/ShiftedClock.pm.
# Proves: I1, I2, I5, I7, D3, R1, R2, failure row "Clock discontinuity on the server"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use ShiftedClock;
use Test::More;

if ($^O ne 'linux')
{
	# how a library is put between, and which clocks there are, is this system's own
	plan skip_all => 'shifts the wall clock by means of Linux';
}

my $clock = ShiftedClock->new;
my $node = lease_cluster('clock', start => 0);
$clock->run($node, 'start');
create_lease($node);
my $session = session($node);
my $wall = 'clock_timestamp()';

# --- Steps while the server runs.
$session->value(q{SELECT lease.acquire('held', 'ann', '30 min')});
my $before = $session->value('SELECT lease.now()');
my $wall_before = $session->value("SELECT $wall");
$clock->set(2);
$session->answers("SELECT $wall > timestamptz '$wall_before' + interval '119 min'", 't', 'the wall clock jumped two hours ahead');
$session->answers("SELECT lease.now() BETWEEN '$before' AND timestamptz '$before' + interval '5 min'", 't', 'lease time did not');
row_is($node, "SELECT lease.now() BETWEEN '$before' AND timestamptz '$before' + interval '5 min'", 't', 'in no session');
row_is($node, q{SELECT extract(epoch FROM difference) BETWEEN -7210 AND -7190, wall_time > lease_time FROM lease.clock}, 't|t', 'lease.clock shows the difference: lease time is behind');
$node->wait_for_log(qr/LOG:  the lease clock is 7[12]\d\d\.\d+ s behind the wall clock/);
$session->answers(q{SELECT acquired FROM lease.acquire('held', 'bob', '1 hour')}, 'f', 'ahead: no lease ends early');
$session->answers(q{SELECT status FROM lease.renew('held', 'ann', 1, '30 min')}, 'ok', 'ahead: its holder renews');
$session->answers(q{SELECT remaining BETWEEN '29 min' AND '30 min' FROM lease.inspect('held')}, 't', 'ahead: remaining is what is left');
$session->value(q{SELECT lease.acquire('short', 'ann', '2 s')});
$clock->set(-3);
$session->answers("SELECT $wall < timestamptz '$wall_before'", 't', 'the wall clock jumped back five hours');
row_is($node, q{SELECT extract(epoch FROM difference) BETWEEN 10790 AND 10810, wall_time < lease_time FROM lease.clock}, 't|t', 'lease.clock shows the difference: lease time is ahead');
$session->answers("SELECT lease.now() BETWEEN '$before' AND timestamptz '$before' + interval '5 min'", 't', 'lease time did not');
$session->answers(q{SELECT acquired FROM lease.acquire('short', 'bob', '1 hour')}, 'f', 'back: a lease lives on');
sleep 2;
$session->answers(q{SELECT acquired, epoch FROM lease.acquire('short', 'bob', '1 hour')}, 't|2', 'back: and ends at its ttl all the same (I5)');
# a crash restart keeps the postmaster, and its clock
my $victim = session($node);
my $log_at = -s $node->logfile;
kill 'KILL', $victim->pid;
$node->wait_for_log(qr/all server processes terminated; reinitializing/, $log_at);
$node->poll_query_until('postgres', undef, '') or die 'the server does not come back';
row_is($node, "SELECT lease.now() BETWEEN '$before' AND timestamptz '$before' + interval '5 min'", 't', 'nor did it at a crash restart');
row_is($node, q{SELECT state_of('held'), state_of('short')}, 'held ann 1|held bob 2', 'the leases neither');

# --- The server starts anew while the wall clock stands back: leases granted in what is now the future end a ttl after the start.
$node->safe_psql('postgres', q{SELECT lease.acquire('granted later', 'ann', '4 s'), lease.acquire('granted later 2', 'ann', '1 hour'), lease.acquire('freed later', 'ann', '1 hour')});
$node->safe_psql('postgres', q{SELECT lease.release('freed later', 'ann', 1)});
$clock->run($node, 'restart');
$session = session($node);
$session->answers("SELECT lease.now() < '$before' AND abs(extract(epoch FROM lease.now() - $wall)) < 10", 't', 'a start with the clock set back: lease time follows');
$session->answers(q{SELECT state_of('granted later')}, 'held ann 1', 'a lease of the future is still held');
my $started = $session->value('SELECT pg_postmaster_start_time()');
$session->answers(q{SELECT remaining <= '4 s', expires_at <= lease.now() + interval '4 s' FROM lease.inspect('granted later')}, 't|t', 'for a ttl from the start at most');
$session->answers(q{SELECT i.state, i.remaining <= '1 hour', l.remaining <= '1 hour' FROM lease.inspect('granted later 2') i, lease.leases l WHERE l.key = 'granted later 2'}, 'held|t|t', 'inspect and the view agree on that');
$session->answers(q{SELECT acquired FROM lease.acquire('granted later 2', 'bob', '1 hour')}, 'f', 'nobody else gets it');
$session->answers(q{SELECT acquired, epoch FROM lease.acquire('freed later', 'bob', '1 hour')}, 't|3', 'what was free is free, epochs go on (I2)');
sleep 4;
$session->answers(q{SELECT status FROM lease.renew('granted later', 'ann', 1, '1 hour')}, 'lapsed', 'its holder is told of the lapse (R2)');
$session->answers(q{SELECT acquired, epoch FROM lease.acquire('granted later', 'bob', '1 hour')}, 't|2', 'and it can be had: no step keeps a dead holder alive (I5)');
$session->answers(q{SELECT status FROM lease.renew('granted later 2', 'ann', 1, '1 hour')}, 'ok', 'one renewed in time goes on');

# --- The server starts anew with the wall clock ahead: everything that ends before is over (D3).
$clock->set(48);
$clock->run($node, 'restart');
$session = session($node);
$session->answers("SELECT abs(extract(epoch FROM lease.now() - $wall)) < 10", 't', 'a start with the clock ahead: lease time follows');
$session->answers(q{SELECT DISTINCT state FROM lease.leases}, 'lapsed', 'everything has lapsed');
$session->answers(q{SELECT acquired, epoch FROM lease.acquire('granted later 2', 'bob', '1 hour')}, 't|2', 'and can be had at once');
$session->quit;
$clock->run($node, 'stop');

done_testing();
