# View lease.waiters: who waits for what, since when, until when, at which place, and who stands in the way. It agrees with
# pg_stat_activity, where a waiter is active and waits.
# With the library of `make test-points`.
# Proves: I5, I11

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use LeasePoints;
use Test::More;

my $node = points_cluster('waiters');
my ($a, $b, $c, $d, $gate) = map { session($node) } 1 .. 5;
my %name = map { $_->[1]->pid => $_->[0] } [ a => $a ], [ b => $b ], [ c => $c ], [ d => $d ];

# key|who|owner|position|waits for|blocker, of all that wait
sub waiters
{
	my $rows = value($node, q{SELECT key, pid, coalesce(owner, '-'), coalesce(position::text, '-'), waits_for, coalesce(blocker_pid::text, '-') FROM lease.waiters ORDER BY key, position NULLS LAST, pid});
	return join "\n", map { join '|', map { $name{$_} // $_ } split /\|/ } split /\n/, $rows;
}
sub are
{
	my ($expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	wait_for_waiters($node, scalar split /\n/, $expected);
	# who was just woken looks again
	for (1 .. 100) { last if waiters() eq $expected; select undef, undef, undef, 0.05; }
	is(waiters(), $expected, $name);
	# all of them and nobody else
	my $event = $node->pg_version >= 17 ? "wait_event LIKE 'Lease%'" : "wait_event = 'Extension'";
	row_is($node, qq{
		SELECT (SELECT string_agg(pid::text, ',' ORDER BY pid) FROM lease.waiters) =
			(SELECT string_agg(pid::text, ',' ORDER BY pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND wait_event_type = 'Extension' AND $event AND state = 'active')},
		't', "$name: pg_stat_activity says so, too");
	return;
}
sub event_is
{
	my ($session, $event) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	row_is($node, 'SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $session->pid, $node->pg_version >= 17 ? $event : 'Extension', "waits in $event");
	return;
}

row_is($node, 'SELECT count(*) FROM lease.waiters', '0', 'nobody waits');

# --- For a lease, in the queue.
$a->value(q{SELECT lease.acquire('k', 'ann', '1 hour')});
my $before = value($node, 'SELECT lease.now()');
$b->send(q{SELECT acquired FROM lease.acquire('k', 'bob', '1 hour', '10 min')});
wait_for_waiters($node, 1);
$c->send(q{CALL lease.wait_acquire('k', 'cat', '1 hour', '100000 days')});
are("k|b|bob|1|lease|-\nk|c|cat|2|lease|-", 'a lease: the queue in its order');
event_is($b, 'LeaseAcquire');
row_is($node, "SELECT bool_and(since BETWEEN '$before' AND lease.now()), min(deadline - since), max(deadline - since) FROM lease.waiters", 't|00:10:00|100000 days', 'since and deadline: as asked');
$d->send(q{SELECT acquired FROM lease.acquire('other', 'dan', '1 hour', '1 min')});
$d->answers(undef, 't', 'a waiter for one key is in nobody else\'s way');

# A wait without end, and one that ends after the last timestamp there is.
$a->value(q{SELECT lease.acquire('far', 'ann', '1 hour')});
my @far = map { session($node) } 1 .. 2;
$far[0]->send(q{SELECT acquired FROM lease.acquire('far', 'eve', '1 hour', '106751991 days')});
wait_for_waiters($node, 3);
$far[1]->send(q{SELECT acquired FROM lease.acquire('far', 'fay', '1 hour', '294276-12-31 23:59:59+00'::timestamptz - lease.now() + '1 day')});
wait_for_waiters($node, 4);
row_is($node, "SELECT count(*), bool_and(since BETWEEN '$before' AND lease.now()), count(deadline) FROM lease.waiters WHERE key = 'far'", '2|t|0', 'waits without end: since when, and no deadline');
value($node, 'SELECT pg_cancel_backend(' . $_->pid . ')') foreach @far;
is($_->answer->{state}, '57014', 'waits without end: cancelled') foreach @far;
$_->quit foreach @far;

# --- The holder's uncommitted release: whoever waits for the lease waits for that. Its renewal changes nothing for them.
$a->value(q{BEGIN; SELECT lease.release('k', 'ann', 1)});
are("k|b|bob|1|uncommitted change|a\nk|c|cat|2|uncommitted change|a", 'an uncommitted release');
$d->send(q{SELECT status FROM lease.renew('k', 'ann', 1, '1 hour')});
are("k|b|bob|1|uncommitted change|a\nk|c|cat|2|uncommitted change|a\nk|d|ann|-|uncommitted change|a", 'a renewal waits beside the queue');
event_is($d, 'LeaseChange');
row_is($node, q{SELECT deadline IS NULL, since > '} . $before . q{' FROM lease.waiters WHERE position IS NULL}, 't|t', 'and does not give up by itself');
$a->value('ROLLBACK');
$d->answers(undef, 'ok', 'it goes on after the rollback');
are("k|b|bob|1|lease|-\nk|c|cat|2|lease|-", 'the queue waits for the lease again');
$a->value(q{BEGIN; SELECT lease.renew('k', 'ann', 1, '1 hour')});
are("k|b|bob|1|lease|-\nk|c|cat|2|lease|-", 'an uncommitted renewal is not what they wait for');
$a->value('ROLLBACK');

# --- A commit.
hold_point($gate, 'sealed');
stand_at($a, 'sealed');
$a->value('BEGIN');
$a->value(q{SELECT lease.release('k', 'ann', 1)});
$a->send('COMMIT');
at_point($node, $a);
are("k|b|bob|1|commit|a\nk|c|cat|2|commit|a", 'a commit');
# another database's view does not show them
$node->safe_psql('postgres', 'CREATE DATABASE elsewhere');
$node->safe_psql('elsewhere', 'CREATE EXTENSION pg_lease');
is(value($node, 'SELECT count(*) FROM lease.waiters', 'elsewhere'), '0', 'another database has waiters of its own');
free_point($gate, 'sealed');
$a->answers(undef, '', 'the commit ends');
$b->answers(undef, 't', 'the head is served');
are('k|c|cat|1|lease|-', 'the next is the head');
$b->value(q{SELECT lease.release('k', 'bob', epoch) FROM lease.inspect('k')});
like($c->answer->{rows}, qr/^t/, 'and is served');

# --- A guard: the lease has ended, and a transaction that was sealed under it commits.
$b->value(q{SELECT lease.acquire('g', 'ann', '500 ms')});
hold_point($gate, 'sealed');
$a->value(q{BEGIN; SELECT lease.guard('g', 'ann', 1); CREATE TEMP TABLE t ()});
$a->send('COMMIT');
at_point($node, $a);
$c->send(q{SELECT acquired FROM lease.acquire('g', 'cat', '1 hour', '1 min')});
are('g|c|cat|1|guard|a', 'a guard, once the lease has ended');
my $timeout = $d->run(q{SELECT acquired FROM lease.acquire('g', 'dan', '1 hour', '50 ms')});
is($timeout->{state}, '57014', 'behind a guard: a wait that runs out of time');
like($timeout->{detail}, qr/\bProcess @{[ $a->pid ]}\b.*\bguard/, 'behind a guard: the detail names its process');
free_point($gate, 'sealed');
$a->answers(undef, '', 'the guarded commit ends');
$c->answers(undef, 't', 'and who waited for it is served');

# a commit that waits for a guard has no owner
$b->value(q{SELECT lease.acquire('h', 'ann', '1 hour')});
hold_point($gate, 'sealed');
$a->value(q{BEGIN; SELECT lease.guard('h', 'ann', 1); CREATE TEMP TABLE t2 ()});
$a->send('COMMIT');
at_point($node, $a);
$b->value(q{BEGIN; SELECT lease.release('h', 'ann', 1)});
$b->send('COMMIT');
are('h|b|-|-|guard|a', 'a commit that waits for a guard');
event_is($b, 'LeaseCommit');
free_point($gate, 'sealed');
$a->answers(undef, '', 'the guarded commit ends');
$b->answers(undef, '', 'so does the one that waited for it');
row_is($node, 'SELECT (SELECT count(*) FROM lease.claims), (SELECT count(*) FROM lease.waiters)', '0|0', 'nothing is left behind');

# --- Places are enough for everybody, whatever is claimed: as many keys as may be, and every session waits for another one.
$node->append_conf('postgresql.conf', 'pg_lease.max_claims = 16');
$_->quit foreach $a, $b, $c, $d, $gate;
$node->restart;
my @sessions = map { session($node) } 1 .. 40;
my $holder = shift @sessions;
$holder->value("SELECT lease.acquire('held $_', 'holder', '1 hour')") foreach 1 .. @sessions;
my @full = splice @sessions, 0, 2;
$full[$_]->value("BEGIN; SELECT count(*) FROM generate_series(1, 8) i, LATERAL lease.acquire('$_ ' || i, 'full', '1 hour')") foreach 0, 1;
$sessions[$_]->send(sprintf q{SELECT acquired FROM lease.acquire('held %d', 'waiter', '1 hour', '1 min')}, $_ + 1) foreach 0 .. $#sessions;
wait_for_waiters($node, scalar @sessions);
is($holder->run(q{SELECT lease.acquire('one more', 'holder', '1 hour')})->{state}, '53200', 'as many keys are claimed as may be, not one more');
row_is($node, 'SELECT count(*), count(DISTINCT key) FROM lease.waiters', join('|', (scalar @sessions) x 2), 'and everybody else waits, each for another key');
$full[$_]->value('ROLLBACK') foreach 0, 1;
foreach my $i (0 .. $#sessions)
{
	$holder->value(sprintf q{SELECT lease.release('held %d', 'holder', 1)}, $i + 1);
	$sessions[$i]->answers(undef, 't', 'and is served');
}
$_->quit foreach $holder, @full, @sessions;
$node->stop;

done_testing();
