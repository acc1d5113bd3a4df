# force_release against every kind of hold and uncommitted change; and no session can take all the room there is.
# Proves: I2, I3, I5 (liveness of takeover), I10, failure row "Holder hangs / network partitions (session alive)",
#   failure row "Resource exhaustion"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use LeasePoints;
use Test::More;
use Time::HiRes qw(time);

my $node = points_cluster('force_release', conf => "pg_lease.max_claims = 16\n");
my ($idle, $dba, $first, $second, $holder) = map { session($node) } 1 .. 5;
my $n = 0;

# --- An open transaction with hours to go claims the key: it is ended at once, and the first waiter has the key.
foreach my $case (
	# how the key is before, what the idle transaction does, what force_release tells, the highest epoch told so far
	[ 'never seen', 'acquire', '|0', 1 ],
	[ 'free', 'acquire', '|2', 3 ],
	[ 'lapsed', 'acquire', '|1', 2 ],
	[ 'held', 'acquire', 'w|1', 2 ],
	[ 'held', 'renew', 'w|1', 1 ],
	[ 'held', 'release', 'w|1', 2 ],
	[ 'held', 'guard', 'w|1', 1 ],
	[ 'held', 'nothing', 'w|1', 1 ])
{
	my ($before, $what, $told, $highest) = @$case;
	my $name = "key $before, $what open";
	my $key = 'key ' . ++$n;
	my %call = (
		acquire => "SELECT acquired FROM lease.acquire('$key', 'w', '10 hours')",
		renew => "SELECT status FROM lease.renew('$key', 'w', 1, '10 hours')",
		release => "SELECT status FROM lease.release('$key', 'w', 1)",
		guard => "SELECT lease.guard('$key', 'w', 1) IS NOT NULL",
		nothing => 'SELECT 1');

	$dba->value(sprintf q{SELECT lease.acquire('%s', 'w', '%s')}, $key, $before eq 'lapsed' ? '1 s' : '5 hours') unless $before eq 'never seen';
	$dba->value("SELECT lease.release('$key', 'w', 1)") if $before eq 'free';
	$dba->value("SELECT pg_sleep(1)") if $before eq 'lapsed';
	$idle->value("BEGIN; $call{$what}");
	foreach my $waiter ([ $first, 'x' ], [ $second, 'y' ])
	{
		my ($session, $owner) = @$waiter;
		$session->send("SELECT acquired, epoch FROM lease.acquire('$key', '$owner', '1 hour', '1 min')");
		wait_for_wait($node, $session);
	}
	my $began = time;
	$dba->answers("SELECT * FROM lease.force_release('$key')", $told, "$name: told as it was");
	my ($granted, $epoch) = split /\|/, $first->answer->{rows};
	is($granted, 't', "$name: the first waiter has the key");
	cmp_ok($epoch, '>', $highest, "$name: under an epoch that nobody was told before");
	cmp_ok(time - $began, '<', 10, "$name: at once");
	ok($second->busy, "$name: the second still waits");
	$idle->answers('COMMIT', $what eq 'nothing' ? '' : $what eq 'guard' ? 'LE003' : 'LE001', "$name: the idle transaction learns at its COMMIT");
	$idle->answers("SELECT status FROM lease.renew('$key', 'w', 1, '1 hour')", 'not_owner', "$name: the former holder is not the owner");
	$first->answers("SELECT status FROM lease.release('$key', 'x', $epoch)", 'ok', "$name: the first releases");
	$second->answers(undef, 't|' . ($epoch + 2), "$name: the second is next");
}

# --- Its own rollback does not give the broken change back.
$dba->value("SELECT lease.acquire('back', 'w', '5 hours')");
$idle->value("BEGIN; SELECT lease.renew('back', 'w', 1, '10 hours')");
$dba->value("BEGIN; SELECT lease.force_release('back'); ROLLBACK");
$idle->answers('COMMIT', 'LE001', 'rolled back: what was broken stays broken');
row_is($node, "SELECT state_of('back')", 'held w 1', 'rolled back: the hold stays');
$idle->answers("SELECT status FROM lease.renew('back', 'w', 1, '10 hours')", 'ok', 'rolled back: and is renewed again');

# --- A change that is being committed is waited for, then ended.
foreach my $case (
	[ 'sealed new', "SELECT acquired FROM lease.acquire('sealed new', 'w', '5 hours')", 'w|1' ],
	[ 'sealed renewal', "SELECT status FROM lease.renew('sealed renewal', 'w', 1, '10 hours')", 'w|1' ],
	[ 'sealed release', "SELECT status FROM lease.release('sealed release', 'w', 1)", '|2' ])
{
	my ($key, $sql, $told) = @$case;
	$idle->value("SELECT lease.acquire('$key', 'w', '5 hours')") if $sql !~ /acquire/;
	hold_point($holder, 'sealed');
	stand_at($idle, 'sealed');
	$idle->send($sql);
	at_point($node, $idle);
	$dba->send("SELECT * FROM lease.force_release('$key')");
	wait_for_wait($node, $dba);
	free_point($holder, 'sealed');
	is($idle->answer->{state}, '00000', "$key: commits");
	$dba->answers(undef, $told, "$key: then it is ended");
	row_is($node, "SELECT state, owner FROM lease.inspect('$key')", 'free|', "$key: and nobody holds the key");
	stand_at($idle, '');
}

# --- An unowned key that somebody takes before force_release commits: no error, the key is the taker's, the epoch goes on.
$dba->value("SELECT lease.acquire('taken', 'w', '5 hours'); SELECT lease.release('taken', 'w', 1)");
hold_point($holder, 'before-seal');
stand_at($dba, 'before-seal');
$dba->send("SELECT * FROM lease.force_release('taken')");
at_point($node, $dba);
$first->answers("SELECT acquired, epoch FROM lease.acquire('taken', 'x', '1 hour')", 't|4', 'an unowned key is taken meanwhile');
free_point($holder, 'before-seal');
$dba->answers(undef, '|2', 'force_release gives way to it');
row_is($node, "SELECT state_of('taken')", 'held x 4', 'the key is the taker\'s');
stand_at($dba, '');

# --- One session may change and guard half of max_claims; the rest is for others.
$dba->value("SELECT lease.acquire('room $_', 'w', '1 hour')") foreach 1 .. 20;
$idle->answers("BEGIN; SELECT count(lease.guard('room ' || i, 'w', 1)) FROM generate_series(1, 8) i", '8', 'half of max_claims can be guarded');
$idle->answers("SAVEPOINT s; SELECT lease.guard('room 9', 'w', 1)", '53200', 'not one more');
$idle->answers("ROLLBACK TO s; SELECT count(lease.guard('room ' || i, 'w', 1)) FROM generate_series(1, 8) i", '8', 'the same again take no room');
$idle->answers("SAVEPOINT t; SELECT status FROM lease.renew('room 10', 'w', 1, '1 hour')", '53200', 'nor a change beside them');
$idle->run('ROLLBACK TO t');
$first->answers("BEGIN; SELECT count(lease.guard('room ' || i, 'w', 1)) FROM generate_series(9, 16) i", '8', 'another session has the other half');
$second->answers("BEGIN; SELECT lease.guard('room 17', 'w', 1)", '53200', 'and a third has none');
$second->run('ROLLBACK');
$second->answers("SELECT state FROM lease.inspect('room 17')", 'held', 'looking needs no room');
$idle->answers('COMMIT', '', 'what was guarded commits');
$second->answers("BEGIN; SELECT lease.guard('room 17', 'w', 1) IS NOT NULL", 't', 'and gives its room back');
$_->run('ROLLBACK') foreach $first, $second;
$idle->answers("BEGIN; SELECT count(status) FROM generate_series(1, 4) i, lease.renew('room ' || i, 'w', 1, '1 hour')", '4', 'changes');
$idle->answers("SELECT count(lease.guard('room ' || i, 'w', 1)) FROM generate_series(1, 4) i", '4', 'and guards, of the same keys');
$idle->answers("SELECT lease.guard('room 5', 'w', 1)", '53200', 'count together');
$idle->run('ROLLBACK');

# At its limit force_release fails, and whose change it met goes on. What needs no room still ends it.
$idle->value("BEGIN; SELECT lease.renew('room 20', 'w', 1, '5 hours'); SELECT lease.acquire('room 21', 'w', '1 hour')");
$dba->answers("BEGIN; SELECT count(status) FROM generate_series(1, 8) i, lease.renew('room ' || i, 'w', 1, '1 hour')", '8', 'a session at its limit');
$dba->answers("SAVEPOINT s; SELECT * FROM lease.force_release('room 20')", '53200', 'at its limit: force_release fails');
$dba->answers("ROLLBACK TO s; SELECT * FROM lease.force_release('room 1')", 'w|1', 'at its limit: not of a key it has changed already');
$dba->answers("SELECT status FROM lease.release('room 19', 'w', 1)", '53200', 'at its limit: so does a release');
$dba->run('ROLLBACK');
$idle->answers('COMMIT', '', 'the change that the failed call met is committed');
row_is($node, "SELECT state_of('room 20'), state_of('room 21')", 'held w 1|held w 1', 'the change that the failed call met stands');
row_is($node, 'SELECT count(*) FROM lease.claims', '0', 'no claim is left');
$node->stop;

done_testing();
