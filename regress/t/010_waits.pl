# A renewal or a release that meets the uncommitted change of another session under the same name waits for it: woken by its end,
# bounded by its deadline, ended by cancel, terminate and timeouts, and nothing is left behind.
# (Two sessions work under one name where a worker renews on one connection and works on another.)
# Proves: I1, I5, I6, I8, I10, D4 (a wait that is lost leaves no trace), failure row "Holder hangs / network partitions (session alive)"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;
use Time::HiRes 'time';

my $node = lease_cluster('waits');
my ($a, $b) = map { session($node) } 1 .. 2;
my $key;

# A key of its own for each case.
sub held { $key = held_key($a, @_); return; }
sub renew { my ($ttl) = @_; return sprintf q{SELECT status FROM lease.renew('%s', 'w', 1, '%s')}, $key, $ttl // '1 hour'; }
sub release { return "SELECT status FROM lease.release('$key', 'w', 1)"; }
sub reacquire { return "SELECT acquired, epoch FROM lease.acquire('$key', 'w', '1 hour')"; }
# What is left when it is over: no claim, nobody who waits.
sub nothing_left
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	row_is($node, 'SELECT open_claims()', '0', "$name: nothing is left behind");
	return;
}

# --- Woken by the end of the other's transaction. All deadlines are an hour away: they are not what helps.
my @cases = (
	# open change, its end, the waiter, the waiter's answer
	[ renew => 'COMMIT', 'renew', 'ok' ],
	[ renew => 'ROLLBACK', 'renew', 'ok' ],
	[ renew => 'COMMIT', 'release', 'ok' ],
	[ renew => 'ROLLBACK', 'release', 'ok' ],
	[ release => 'COMMIT', 'renew', 'not_owner' ],
	[ release => 'ROLLBACK', 'renew', 'ok' ],
	[ release => 'COMMIT', 'release', 'not_owner' ],
	[ release => 'ROLLBACK', 'release', 'ok' ],
	[ reacquire => 'COMMIT', 'renew', 'epoch_mismatch' ],
	[ reacquire => 'ROLLBACK', 'renew', 'ok' ],
	[ reacquire => 'COMMIT', 'release', 'epoch_mismatch' ],
	[ reacquire => 'ROLLBACK TO s', 'release', 'ok' ],
	[ release => 'ROLLBACK TO s', 'renew', 'ok' ],
	[ renew => 'ROLLBACK TO s', 'renew', 'ok' ],
	[ release => 'SELECT 1 / 0', 'renew', 'ok' ]);
my %call = (renew => \&renew, release => \&release, reacquire => \&reacquire);
foreach my $case (@cases)
{
	my ($change, $end, $waiter, $answer) = @$case;
	my $name = "$waiter waits for an open $change, then $end";

	held();
	$a->value($end =~ / TO / ? 'BEGIN; SAVEPOINT s' : 'BEGIN');
	$a->value($call{$change}->());
	$b->send($call{$waiter}->());
	wait_for_wait($node, $b);
	row_is($node, "SELECT acquired FROM lease.acquire('$key', 'x', '1 min')", 'f', "$name: acquires do not wait behind it");
	$a->run($end);
	$b->answers(undef, $answer, $name);
	$a->run('COMMIT') if $end =~ / TO |1 \/ 0/;
	nothing_left($name);
}

# --- Forty times woken by the commit: had it been a tick of one second that helped, forty of them would be far over the bound.
held();
my $woken = 0;
foreach (1 .. 40)
{
	$a->value('BEGIN');
	$a->value(renew());
	$b->send(renew());
	wait_for_wait($node, $b);
	my $from = time;
	$a->value('COMMIT');
	$b->answer->{rows} eq 'ok' or die 'not renewed';
	$woken += time - $from;
}
cmp_ok($woken, '<', 10, 'forty waits are woken by the end of what they waited for');

# --- A closed connection is an end like any other.
held();
my $leaver = session($node);
$leaver->value('BEGIN');
$leaver->value(release());
$b->send(renew());
wait_for_wait($node, $b);
$leaver->kill;
$b->answers(undef, 'ok', 'renew waits for a session that goes away');

# --- Left open: bounded by the deadline, exactly from below.
held();
$a->value('BEGIN');
my $deadline = $a->value("SELECT expires_at FROM lease.renew('$key', 'w', 1, '2 s')");
$b->answers("SELECT r.status, r.expires_at - interval '1 hour' >= '$deadline', r.expires_at - interval '1 hour' < timestamptz '$deadline' + interval '10 s' FROM lease.renew('$key', 'w', 1, '1 hour') r",
	'ok|t|t', 'renew behind an open renewal: ok at its deadline, and not before');
$a->answers('COMMIT', 'LE001', 'the renewal it passed cannot commit');
row_is($node, "SELECT remaining > '50 min' FROM lease.inspect('$key')", 't', 'the one that was served stands');

held('3 s');
$a->value('BEGIN');
$a->value(release());
$b->answers("SELECT r.status, lease.now() >= (SELECT granted_at + ttl FROM lease.leases WHERE key = '$key') FROM lease.renew('$key', 'w', 1, '1 hour') r",
	'lapsed|t', 'renew behind an open release: lapsed at its expiry, and not before');
$a->answers('COMMIT', 'LE001', 'the release that outlived its lease cannot commit');

held('3 s');
$a->value('BEGIN');
$a->value(release());
$b->answers("SELECT r.status, lease.now() >= (SELECT granted_at + ttl FROM lease.leases WHERE key = '$key') FROM lease.release('$key', 'w', 1) r",
	'lapsed|t', 'release behind an open release: lapsed at its expiry, and not before');
$a->answers('ROLLBACK; SELECT 1', '1', 'and its rollback is fine');

# ... by a backend that stands still, too
held();
my $frozen = session($node);
$frozen->value('BEGIN');
$deadline = $frozen->value("SELECT expires_at FROM lease.renew('$key', 'w', 1, '2 s')");
kill 'STOP', $frozen->pid;
$b->answers("SELECT r.status, r.expires_at - interval '1 hour' >= '$deadline' FROM lease.renew('$key', 'w', 1, '1 hour') r", 'ok|t', 'renew behind a stopped backend');
kill 'CONT', $frozen->pid;
$frozen->answers('COMMIT', 'LE001', 'which learns so at its COMMIT');
$frozen->quit;

# A deadline moved on while somebody waits is waited for; one moved nearer, too.
held();
$a->value('BEGIN');
$a->value(renew('2 s'));
$b->send("SELECT r.status FROM lease.renew('$key', 'w', 1, '1 hour') r");
wait_for_wait($node, $b);
$a->value(renew('1 hour'));
value($node, 'SELECT pg_sleep(2)');
ok($b->busy, 'a deadline moved on: the wait goes on');
$a->value(renew('1 s'));
$b->answers(undef, 'ok', 'a deadline moved nearer: the wait ends there');
$a->answers('COMMIT', 'LE001', 'the change that was passed cannot commit');

# --- Isolation levels: what was waited for has changed the key after the snapshot.
held();
$b->value('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
$a->value('BEGIN');
$a->value(renew());
$b->send(renew());
wait_for_wait($node, $b);
$a->value('COMMIT');
$b->answers(undef, '40001', 'REPEATABLE READ: 40001 after the commit it waited for');
$b->run('ROLLBACK');
$b->value('BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT 1');
$a->value('BEGIN');
$a->value(renew());
$b->send(release());
wait_for_wait($node, $b);
$a->value('ROLLBACK');
$b->answers(undef, 'ok', 'SERIALIZABLE: ok after a rollback');
$b->value('COMMIT');

# --- Several wait: all are woken, all are served.
held();
my @many = map { session($node) } 1 .. 8;
$a->value('BEGIN');
$a->value(renew());
$_->send(renew()) foreach @many;
wait_for_wait($node, @many);
$a->value('COMMIT');
$_->answers(undef, 'ok', 'one of eight who waited renews') foreach @many;
$a->value('BEGIN');
$a->value(renew());
$_->send(release()) foreach @many;
wait_for_wait($node, @many);
$a->value('COMMIT');
is(join(' ', sort map { $_->answer->{rows} } @many), 'not_owner ' x 7 . 'ok', 'of eight releases that waited one is ok');
row_is($node, "SELECT state_of('$key')", 'free 2', 'and the epoch is one higher');
nothing_left('many waiters');

# --- Interrupted: cancel, terminate, timeouts. The waiter goes, the change it waited for is not disturbed.
held();
$a->value('BEGIN');
$a->value(renew());
foreach my $case (
	[ 'cancel', '', '57014' ],
	[ 'statement_timeout', q{SET statement_timeout = '200ms'}, '57014' ],
	[ 'lock_timeout', q{SET lock_timeout = '200ms'}, '55P03' ],
	[ 'terminate', '', '57P01' ],
	[ 'vanished client', '', undef ])
{
	my ($how, $setup, $state) = @$case;
	my $waiter = session($node, $setup ? (setup => $setup) : ());

	$waiter->value(q{BEGIN; SELECT lease.acquire('taken along', 'w', '1 hour')});
	my $at = $waiter->value('SELECT lease.now()');
	$waiter->send(renew());
	wait_for_wait($node, $waiter) unless $setup;
	value($node, 'SELECT pg_cancel_backend(' . $waiter->pid . ')') if $how eq 'cancel';
	value($node, 'SELECT pg_terminate_backend(' . $waiter->pid . ')') if $how eq 'terminate';
	if ($state)
	{
		is($waiter->answer->{state}, $state, "$how ends the wait: $state");
		row_is($node, "SELECT lease.now() >= timestamptz '$at' + interval '200 ms'", 't', "$how: not before its time") if $setup;
		$waiter->run('ROLLBACK') unless $how eq 'terminate';
	}
	else
	{
		# the server notices when it answers
		$waiter->kill;
		value($node, 'SELECT pg_cancel_backend(' . $waiter->pid . ')');
	}
	wait_until_gone($node, $waiter->pid) if $how =~ /terminate|vanished/;
	row_is($node, "SELECT string_agg(key, ',') FROM lease.claims WHERE kind <> 'maintenance'", $key, "$how: what the waiter had is gone, what it waited for is not");
	$waiter->quit if $how !~ /terminate|vanished/;
}
$a->answers('COMMIT', '', 'the change all of them waited for commits');
$b->answers(renew(), 'ok', 'and the next renewal does not wait');
nothing_left('interruptions');

# A killed waiter takes the server through a crash restart; the wait leaves nothing.
$a->value('BEGIN');
$a->value(renew());
$b->send(renew());
wait_for_wait($node, $b);
my $log_at = -s $node->logfile;
kill 'KILL', $b->pid;
$node->wait_for_log(qr/all server processes terminated; reinitializing/, $log_at);
$node->poll_query_until('postgres', undef, '') or die 'the server does not come back';
nothing_left('a killed waiter');
row_is($node, renew(), 'ok', 'a killed waiter: the key can be renewed');
undef $_ foreach $a, $b, @many;
$node->stop;

done_testing();
