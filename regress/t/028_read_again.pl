# A call whose key others change while it reads has to read again, for as long as they do: a cancel ends it before the next look, and
# nothing is left of it. And what a look counts as that comes a moment before the end of a lease.
# With the library of `make test-points`.
# Proves: I10, failure row "Operation transaction aborts", failure row "Client crashes mid-operation"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use LeasePoints;
use Test::More;

my $node = points_cluster('read_again');
my ($b, $first, $second) = map { session($node) } 1 .. 3;
$b->value(q{SELECT lease.acquire('k', 'w', '1 hour')});
# A session that waits at the point without heeding anything. It knows the table: to learn of it takes reads that heed interrupts.
sub stand
{
	my $session = session($node);
	$session->value(q{SELECT lease.acquire('k', 'w', '1 hour') FROM lease.inspect('k'); SELECT lease.guard('k', 'w', epoch) FROM lease.inspect('k')});
	stand_at($session, 'read');
	return $session;
}
my $a = stand();

foreach my $how ('cancel', 'terminate')
{
	foreach my $call (q{lease.acquire('k', 'w', '1 hour')}, q{lease.renew('k', 'w', EPOCH, '1 hour')}, q{lease.guard('k', 'w', EPOCH)})
	{
		my $epoch = value($node, q{SELECT epoch FROM lease.inspect('k')});

		hold_point($first, 'read');
		$a->send('SELECT ' . $call =~ s/EPOCH/$epoch/r);
		at_point($node, $a);
		# what it is going to read is out of date, and it would come to the point again, which is then held by another session
		$b->value("BEGIN; SELECT lease.release('k', 'w', $epoch); ROLLBACK");
		$second->send(q{SELECT pg_advisory_lock(125534, hashtext('read'))});
		at_point($node, $second);
		value($node, "SELECT pg_${how}_backend(" . $a->pid . ')');
		free_point($first, 'read');
		$second->answers(undef, '', "$how: $call: it goes on from the point");
		is($a->answer->{state}, $how eq 'cancel' ? '57014' : '57P01', "$how: $call: and is ended before it reads again");
		free_point($second, 'read');
		if ($how eq 'terminate') { wait_until_gone($node, $a->pid); $a = stand(); $epoch++; }
		row_is($node, q{SELECT state_of('k'), open_claims()}, "held w $epoch|0", "$how: $call: nothing was changed, nothing is left");
	}
}

# --- The safety tick has a waiter look just before the lease ends by itself, and it has ended when the waiter decides: its own timer
# would have told it. Nobody has missed a wake-up, and none is counted.
$b->value(q{SELECT lease.acquire('tick', 'w', '4 s')});
$a->value(q{SET deadlock_timeout = '10min'});
$a->send(q{SELECT acquired, epoch FROM lease.acquire('tick', 'bob', '1 hour', '1 min')});
wait_for_wait($node, $a);
my $before = counters($node);
hold_point($first, 'read');
at_point($node, $a);
row_is($node, q{SELECT state_of('tick')}, 'held w 1', 'the safety tick: the lease is held when it looks');
$b->value(q{SELECT pg_sleep(greatest(extract(epoch FROM remaining), 0) + 0.001) FROM lease.inspect('tick')});
free_point($first, 'read');
$a->answers(undef, 't|2', 'and has ended when it decides');
my $after = counters($node);
is($after->{safety_ticks} - $before->{safety_ticks}, 1, 'a safety tick');
is($after->{safety_ticks_that_helped} - $before->{safety_ticks_that_helped}, 0, 'which was not needed');
$_->quit foreach $a, $b, $first, $second;
$node->stop;

done_testing();
