# Transactions that wait for each other's keys in a ring: one of them gets 40P01 after deadlock_timeout, the others go on. Contention that is
# no ring never gets one.
# Proves: I5, I10, I11, failure row "Operation transaction aborts"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

my $seconds = $ENV{PG_LEASE_SECONDS} // 20;
my $node = lease_cluster('deadlocks', conf => "deadlock_timeout = '500ms'\n");
my $nothing = 'SELECT (SELECT count(*) FROM lease.claims), (SELECT count(*) FROM lease.waiters)';
my $n = 0;

# Each of a ring claims a key and then waits for that of the next; the last one to wait closes it.
foreach my $size (2, 3, 8, 2, 3, 8)
{
	my $ring = 'ring ' . ++$n . ", $size sessions";
	my @session = map { session($node) } 1 .. $size;
	my $before = counters($node);
	my (%got, @victims);

	# in every second ring the first waits not in the queue but beside it, to renew what the next one is renewing, too
	my $beside = $n % 2 == 0;
	foreach my $i (0 .. $#session)
	{
		$session[$i]->value("SELECT lease.acquire('$ring: $i', 'owner $i', '1 hour')") if $beside && $i == 1;
		$session[$i]->value('BEGIN');
		$session[$i]->value($beside && $i == 1 ? "SELECT lease.renew('$ring: $i', 'owner $i', 1, '1 hour')" : "SELECT lease.acquire('$ring: $i', 'owner $i', '1 hour')");
	}
	foreach my $i (0 .. $#session)
	{
		my $next = ($i + 1) % $size;
		my $call = $beside && $i == 0 ? "status FROM lease.renew('$ring: $next', 'owner $next', 1, '1 hour')" : "acquired FROM lease.acquire('$ring: $next', 'owner $i', '1 hour', '1 min')";
		$session[$i]->send("SELECT $call");
		wait_for_waiters($node, $i + 1) if $i < $#session;
	}
	# whoever got the key of the one that gave up ends its own transaction, and so on around the ring
	my $deadline = time + 60;
	while (keys %got < $size && time < $deadline)
	{
		foreach my $i (grep { !$got{$_} && !$session[$_]->busy } 0 .. $#session)
		{
			$got{$i} = $session[$i]->answer;
			push @victims, $i if $got{$i}{state} ne '00000';
			$session[$i]->value('ROLLBACK');
		}
		select undef, undef, undef, 0.01;
	}
	is(scalar keys %got, $size, "$ring: every wait ends");
	is(scalar @victims, 1, "$ring: one of them gives up");
	is($got{ $victims[0] }{state}, '40P01', "$ring: with 40P01");
	like($got{ $victims[0] }{detail}, qr/\b@{[ $session[ $victims[0] ]->pid ]}\b.*"\Q$ring\E: \d"/, "$ring: which names its process and the key");
	my $rows = join ' ', sort map { $got{$_}{rows} } grep { $_ != $victims[0] } 0 .. $#session;
	like($rows, qr/^(ok ?)?(t ?)*$/, "$ring: the others are served ($rows)");
	is(counters($node)->{deadlocks} - $before->{deadlocks}, 1, "$ring: one deadlock is counted");
	row_is($node, $nothing, '0|0', "$ring: nothing is left behind");
	$_->quit foreach @session;
}

# Not before deadlock_timeout, and what was claimed before a savepoint stands.
my ($a, $b) = map { session($node) } 1 .. 2;
my %began;
$a->value(q{BEGIN; SELECT lease.acquire('a', 'ann', '1 hour'); SAVEPOINT s});
$b->value(q{BEGIN; SELECT lease.acquire('b', 'bob', '1 hour'); SAVEPOINT s});
$began{$a} = value($node, 'SELECT lease.now()');
$a->send(q{SELECT acquired FROM lease.acquire('b', 'ann', '1 hour', '1 min')});
wait_for_waiters($node, 1);
$began{$b} = value($node, 'SELECT lease.now()');
$b->send(q{SELECT acquired FROM lease.acquire('a', 'bob', '1 hour', '1 min')});
my ($victim, $survivor) = ($a, $b);
while ($a->busy && $b->busy) { select undef, undef, undef, 0.01; }
($victim, $survivor) = ($b, $a) if $a->busy;
is($victim->answer->{state}, '40P01', 'a ring with a savepoint: 40P01');
row_is($node, "SELECT lease.now() >= timestamptz '$began{$victim}' + interval '500 ms'", 't', 'a ring with a savepoint: not before it has waited for deadlock_timeout');
$victim->value('ROLLBACK TO s');
ok($survivor->busy, 'a ring with a savepoint: the other goes on waiting');
$victim->value('ROLLBACK');
$survivor->answers(undef, 't', 'a ring with a savepoint: until the claim itself is gone');
$survivor->value('ROLLBACK');

# A ring that opens by itself is none: the claim that is waited for has a deadline.
$a->value(q{BEGIN; SELECT lease.acquire('a', 'ann', '1 hour')});
$b->value(q{BEGIN; SELECT lease.acquire('b', 'bob', '200 ms')});
$a->send(q{SELECT acquired FROM lease.acquire('b', 'ann', '1 hour', '1 min')});
$b->send(q{SELECT acquired FROM lease.acquire('a', 'bob', '1 hour', '1 min')});
$a->answers(undef, 't', 'a ring that opens at a deadline: who waited for it is served');
$a->value('ROLLBACK');
$b->answers(undef, 't', 'a ring that opens at a deadline: so is the other');
$b->answers('COMMIT', 'LE001', 'a ring that opens at a deadline: whose first claim is gone');
row_is($node, $nothing, '0|0', 'nothing is left behind');
$_->quit foreach $a, $b;

# --- No false alarm: keys taken in one order, the check as often as it can be.
sub contention
{
	my ($name, $order, $seconds) = @_;
	my $script = PostgreSQL::Test::Utils::tempdir() . '/contention.sql';
	my ($in, $out) = ('', '');

	PostgreSQL::Test::Utils::append_to_file($script, qq{
\\set x random(1, 6)
\\set y random(1, 6)
\\set a $order->[0]
\\set b $order->[1]
\\set back random(0, 3)
BEGIN;
SELECT epoch AS e FROM lease.acquire('c ' || :a, 'client ' || :client_id, '1 hour', '1 min') \\gset
SELECT epoch AS f FROM lease.acquire('c ' || :b, 'client ' || :client_id, '1 hour', '1 min') \\gset
\\if :a <> :b
SELECT lease.release('c ' || :a, 'client ' || :client_id, :e);
\\endif
SELECT lease.release('c ' || :b, 'client ' || :client_id, :f);
\\if :back = 0
ROLLBACK;
\\else
COMMIT;
\\endif
});
	IPC::Run::run([ $node->installed_command('pgbench'), '-n', '-c', 12, '-T', $seconds, '-f', $script, $node->connstr('postgres') ], '<', \$in, '>', \$out, '2>&1');
	my ($done) = $out =~ /number of transactions actually processed: (\d+)/;
	my ($failed) = $out =~ /number of failed transactions: (\d+)/;
	note("$name: $done transactions, $failed failed");
	cmp_ok($done, '>', 10, "$name: goes on to the end") or diag($out);
	unlike($out, qr/aborted/, "$name: without any other error");
	row_is($node, $nothing, '0|0', "$name: nothing is left behind");
	return $failed;
}
$node->append_conf('postgresql.conf', "deadlock_timeout = '1ms'");
$node->reload;
my $before = counters($node);
is(contention('contention', [ 'least(:x, :y)', 'greatest(:x, :y)' ], $seconds), 0, 'contention: no false alarm');
my $after = counters($node);
is($after->{deadlocks}, $before->{deadlocks}, 'contention: none is counted');
is($after->{safety_ticks_that_helped}, $before->{safety_ticks_that_helped}, 'contention: the safety tick never helped');
cmp_ok($after->{waits} - $before->{waits}, '>', 10, 'contention: there were waits');
$before = $after;
cmp_ok(contention('rings at random', [ ':x', ':y' ], $seconds / 10), '>', 0, 'rings at random: some give up');
cmp_ok(counters($node)->{deadlocks} - $before->{deadlocks}, '>', 0, 'rings at random: which is counted');
$node->stop;

done_testing();
