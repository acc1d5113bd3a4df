# Every way in which a wait for a lease ends without one: its own bound, PostgreSQL's timeouts, cancel, termination, a client that is gone,
# the death of the postmaster. The waiter leaves nothing behind, and the one behind it has its turn.
# Proves: I5, I10, D4 (a wait that is lost leaves no trace), failure row "Client crashes mid-operation", failure row "Operation transaction aborts"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

my $node = lease_cluster('wait_ends');
my ($holder, $other) = map { session($node) } 1 .. 2;
my $n = 0;
my ($key, $epoch);

sub held
{
	$key = 'key ' . ++$n;
	$epoch = $holder->value("SELECT epoch FROM lease.acquire('$key', 'holder', '1 hour')");
	return;
}
sub wait_as { my ($owner, $wait) = @_; return sprintf q{SELECT acquired, epoch FROM lease.acquire('%s', '%s', '1 hour', '%s')}, $key, $owner, $wait // '1 min'; }
sub wait_by_procedure_as { my ($owner, $wait) = @_; return sprintf q{CALL lease.wait_acquire('%s', '%s', '1 hour', '%s')}, $key, $owner, $wait // '1 min'; }

# The waiter is gone, the one behind it is the head, and gets the key with the release.
sub turn_passes_on
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->poll_query_until('postgres', 'SELECT count(*) = 1 FROM lease.waiters') or die "$name: the waiter stays";
	row_is($node, 'SELECT owner, position, waits_for FROM lease.waiters', 'next|1|lease', "$name: the one behind it is the head");
	row_is($node, 'SELECT count(*) FROM lease.claims', '0', "$name: no claim is left");
	$holder->value("SELECT lease.release('$key', 'holder', $epoch)");
	$other->answers(undef, 't|' . ($epoch + 2), "$name: and gets the key");
	return;
}

# --- The head leaves while the key is held.
my %ways = (
	'its own bound' => { wait => '300 ms', state => '57014' },
	'statement_timeout' => { setup => q{SET statement_timeout = '300ms'}, state => '57014' },
	'lock_timeout' => { setup => q{SET lock_timeout = '300ms'}, state => '55P03' },
	'cancel' => { act => sub { value($node, "SELECT pg_cancel_backend($_[0])") }, state => '57014' },
	'termination' => { act => sub { value($node, "SELECT pg_terminate_backend($_[0])") }, state => '57P01', gone => 1 },
	'a client that is gone' => { setup => q{SET client_connection_check_interval = '50ms'}, gone => 1 });
foreach my $how (sort keys %ways)
{
	foreach my $procedure (0, 1)
	{
		my %way = %{ $ways{$how} };
		my $name = $how . ($procedure ? ' in the procedure' : '');
		my $call = $procedure ? \&wait_by_procedure_as : \&wait_as;

		held();
		my $waiter = session($node, $way{setup} ? (setup => $way{setup}) : ());
		my $began = $waiter->value('SELECT lease.now()');
		$waiter->send($call->('waiter', $way{wait}));
		wait_for_waiters($node, 1) unless $way{setup} && $way{setup} =~ /_timeout/ || $way{wait};
		$other->send(wait_as('next'));
		if ($how eq 'a client that is gone') { wait_for_waiters($node, 2); $waiter->kill; }
		else
		{
			if ($way{act}) { wait_for_waiters($node, 2); $way{act}->($waiter->pid); }
			my $answer = $waiter->answer;
			is($answer->{state}, $way{state}, "$name: $way{state}");
			row_is($node, "SELECT lease.now() >= timestamptz '$began' + interval '300 ms'", 't', "$name: not before its time") unless $way{act};
			if ($way{wait})
			{
				like($answer->{message}, qr/0\.3 s.*"$key"/, "$name: the message names the wait and the key");
				like($answer->{detail}, qr/"holder".* expires in \d+/, "$name: the detail names the holder and the expiry");
			}
			else { unlike($answer->{message}, qr/timed out after/, "$name: the message is another than that of the wait's own bound"); }
			like($answer->{detail}, qr/"$key"/, "$name: the detail names the key") if $how eq 'lock_timeout';
		}
		wait_until_gone($node, $waiter->pid) if $way{gone};
		turn_passes_on($name);
		$waiter->quit unless $way{gone};
	}
}

# A wait of no time asks once; what stands in the way by then is named.
held();
my $answer = $other->run(wait_as('waiter', '0'));
is($answer->{state}, '57014', 'wait 0: 57014');
like($answer->{message}, qr/0 s.*"$key"/, 'wait 0: names wait and key');
$holder->value("BEGIN; SELECT lease.release('$key', 'holder', $epoch)");
$answer = $other->run(wait_as('waiter', '50 ms'));
is($answer->{state}, '57014', 'behind an open release: 57014');
like($answer->{detail}, qr/\b@{[ $holder->pid ]}\b.*uncommitted.*deadline.* \d+/, 'behind an open release: the detail names its process and its deadline');
$holder->value('ROLLBACK');

# --- Inside a transaction: a savepoint or an exception block takes it back, and what was claimed before stays.
held();
my $waiter = session($node);
$waiter->value("BEGIN; SELECT lease.acquire('own $n', 'waiter', '1 hour'); SAVEPOINT s");
$waiter->send(wait_as('waiter'));
wait_for_waiters($node, 1);
value($node, 'SELECT pg_cancel_backend(' . $waiter->pid . ')');
is($waiter->answer->{state}, '57014', 'cancelled behind a savepoint');
row_is($node, 'SELECT count(*) FROM lease.waiters', '0', 'cancelled behind a savepoint: waits no more');
$waiter->value('ROLLBACK TO s');
row_is($node, 'SELECT key FROM lease.claims', "own $n", 'cancelled behind a savepoint: what it had claimed before stands');
$waiter->answers('COMMIT', '', 'cancelled behind a savepoint: and commits');
row_is($node, "SELECT state_of('own $n')", 'held waiter 1', 'cancelled behind a savepoint: what it had before is its own');

foreach my $case ([ 'query_canceled', '100 ms', '' ], [ 'lock_not_available', '1 min', q{SET LOCAL lock_timeout = '100ms';} ])
{
	my ($condition, $wait, $setup) = @$case;

	held();
	$waiter->answers(qq{BEGIN; $setup
		DO \$\$
		BEGIN
			PERFORM lease.acquire('$key', 'waiter', '1 hour', '$wait');
		EXCEPTION WHEN $condition THEN
			PERFORM lease.acquire('instead $n', 'waiter', '1 hour');
		END \$\$;
		SELECT string_agg(key, ',') FROM lease.claims; COMMIT}, "instead $n", "$condition can be caught, and the transaction goes on");
	row_is($node, "SELECT count(*), state_of('instead $n') FROM lease.waiters", '0|held waiter 1', "$condition: and commits, nothing waits");
}

# --- The head leaves when the key was handed to it, before it could look: the hand-off is passed on.
foreach my $how (qw(cancel terminate))
{
	foreach my $round (1 .. 10)
	{
		my $name = "$how after the hand-off";
		my $stopped = session($node);

		held();
		$stopped->send(wait_as('waiter'));
		wait_for_waiters($node, 1);
		$other->send(wait_as('next'));
		wait_for_waiters($node, 2);
		kill 'STOP', $stopped->pid;
		$holder->value("SELECT lease.release('$key', 'holder', $epoch)");
		kill $how eq 'cancel' ? 'INT' : 'TERM', $stopped->pid;
		kill 'CONT', $stopped->pid;
		is($stopped->answer->{state}, $how eq 'cancel' ? '57014' : '57P01', "$name: ends the wait");
		$other->answers(undef, 't|' . ($epoch + 2), "$name: the next gets the key");
		$stopped->quit if $how eq 'cancel';
	}
}
row_is($node, 'SELECT (SELECT count(*) FROM lease.claims), (SELECT count(*) FROM lease.waiters)', '0|0', 'nothing is left behind');

# --- The postmaster dies.
held();
$waiter->send(wait_as('waiter'));
wait_for_waiters($node, 1);
my $pid = $waiter->pid;
kill 'KILL', $node->{_pid};
my $gone;
# where nobody collects it, a process that has ended stays as a zombie
for (1 .. 100) { last if $gone = !kill(0, $pid) || `ps -o stat= -p $pid` =~ /^Z/; select undef, undef, undef, 0.1; }
ok($gone, 'the postmaster dies: so does the waiter');
undef $_ foreach $holder, $other, $waiter;
$node->{_pid} = undef;

done_testing();
