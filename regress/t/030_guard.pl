# Guarded commits against takeovers, releases, renewals and each other, held still at each step between COMMIT and its end.
# Proves: I2, I3 (fencing effectiveness), I6, A1

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use LeasePoints;
use Test::More;
use Time::HiRes qw(time);

my $node = points_cluster('guard', conf => "max_connections = 260\n");
$node->safe_psql('postgres', 'CREATE TABLE written (key text, who text)');
my ($writer, $other, $third, $holder) = map { session($node) } 1 .. 4;
my $key;

# A key of its own for each case.
sub held { $key = held_key($third, @_); return; }
sub guard { my ($session) = @_; $session->value("BEGIN; SELECT lease.guard('$key', 'w', 1); INSERT INTO written VALUES ('$key', 'w')"); return; }
sub written { return value($node, "SELECT count(*) FROM written WHERE key = '$key'"); }
sub lapse { $third->value("SELECT pg_sleep(greatest(extract(epoch FROM remaining), 0) + 0.001) FROM lease.inspect('$key')"); return; }

my %call = (
	release => sub { "SELECT status FROM lease.release('$key', 'w', 1)" },
	renew => sub { "SELECT status FROM lease.renew('$key', 'w', 1, '2 hours')" },
	'force_release' => sub { "SELECT * FROM lease.force_release('$key')" },
	'acquire' => sub { "SELECT acquired, epoch FROM lease.acquire('$key', 'x', '1 hour')" },
	'acquire with wait' => sub { "SELECT acquired, epoch FROM lease.acquire('$key', 'x', '1 hour', '1 min')" },
	're-acquire' => sub { "SELECT acquired, epoch FROM lease.acquire('$key', 'w', '1 hour')" });

# --- Sealed: whatever would end the term waits until what the guard protects is visible.
foreach my $case (
	# what, its answer, the lease lapses after the seal, what the key is then
	[ 'release', 'ok', 0, 'free 2' ],
	[ 'force_release', 'w|1', 0, 'free 2' ],
	[ 're-acquire', 't|2', 0, 'held w 2' ],
	[ 'acquire', 't|2', 1, 'held x 2' ],
	[ 'acquire with wait', 't|2', 1, 'held x 2' ],
	[ 're-acquire', 't|2', 1, 'held w 2' ],
	[ 'force_release', '|1', 1, 'free 2' ])
{
	my ($what, $answer, $lapsed, $state) = @$case;
	my $name = $what . ($lapsed ? ' of a lapsed lease' : '') . ' under a sealed guard';

	held($lapsed ? '2 s' : '1 hour');
	hold_point($holder, 'sealed');
	stand_at($writer, 'sealed');
	guard($writer);
	$writer->send('COMMIT');
	at_point($node, $writer);
	lapse() if $lapsed;
	$other->send($call{$what}->());
	wait_for_wait($node, $other);
	row_is($node, "SELECT state_of('$key')", $lapsed ? 'lapsed 1' : 'held w 1', "$name: nothing of it is to be seen");
	is(written(), 0, "$name: the guarded write is not visible yet either");
	free_point($holder, 'sealed');
	$writer->answers(undef, '', "$name: the guarded transaction commits");
	$other->answers(undef, $answer, "$name: goes on after it");
	is(written(), 1, "$name: the guarded write is there");
	row_is($node, "SELECT state_of('$key')", $state, "$name: and so is the change");
}

# An acquire that is not to wait does not wait for long.
held('2 s');
hold_point($holder, 'sealed');
guard($writer);
$writer->send('COMMIT');
at_point($node, $writer);
lapse();
my $began = time;
$other->answers($call{acquire}->(), 'f|', 'acquire without wait under a sealed guard that takes its time: denied');
cmp_ok(time - $began, '>=', 1, 'after a second');
cmp_ok(time - $began, '<', 10, 'and not much later');
free_point($holder, 'sealed');
$writer->answers(undef, '', 'the guarded transaction commits');
$other->answers($call{acquire}->(), 't|2', 'then it can be had');

# --- Not sealed: the other is first, and the guarded transaction fails as a whole.
foreach my $case (
	[ 'release', 'ok', 0, 'LE003' ],
	[ 'force_release', 'w|1', 0, 'LE003' ],
	[ 're-acquire', 't|2', 0, 'LE002' ],
	[ 'acquire', 't|2', 1, 'LE003' ],
	[ undef, undef, 1, 'LE001' ],
	[ 'force_release', '|1', 1, 'LE003' ])
{
	my ($what, $answer, $lapsed, $state) = @$case;
	my $name = ($what // 'nothing') . ($lapsed ? ' after the lapse' : '') . ' before the seal';

	held($lapsed ? '2 s' : '1 hour');
	hold_point($holder, 'before-seal');
	stand_at($writer, 'before-seal');
	guard($writer);
	$writer->send('COMMIT');
	at_point($node, $writer);
	lapse() if $lapsed;
	$other->answers($call{$what}->(), $answer, "$name: is not held up") if defined $what;
	free_point($holder, 'before-seal');
	$writer->answers(undef, $state, "$name: the guarded transaction learns it");
	is(written(), 0, "$name: and has written nothing");
}

# --- The other is sealed first: the guarded commit waits for its outcome.
foreach my $what ('release', 'force_release', 're-acquire')
{
	foreach my $end ('commit', 'cancel')
	{
		my $name = "guarded commit behind a sealed $what, then $end";
		held();
		hold_point($holder, 'sealed');
		stand_at($other, 'sealed');
		stand_at($writer, '');
		guard($writer);
		$other->send($call{$what}->());
		at_point($node, $other);
		$writer->send('COMMIT');
		wait_for_wait($node, $writer);
		value($node, 'SELECT pg_cancel_backend(' . $other->pid . ')') if $end eq 'cancel';
		$other->answer if $end eq 'cancel';
		free_point($holder, 'sealed');
		$other->answer if $end eq 'commit';
		$writer->answers(undef, $end eq 'cancel' ? '' : $what eq 're-acquire' ? 'LE002' : 'LE003', $name);
		is(written(), $end eq 'cancel' ? 1 : 0, "$name: written accordingly");
	}
}
stand_at($other, '');

# --- Renewals from other sessions go on, whatever state the guard is in, and guards whatever state the renewal is in.
foreach my $point ('before-seal', 'check', 'sealed', 'written', 'visible')
{
	held('3 s');
	hold_point($holder, $point);
	stand_at($writer, $point);
	guard($writer);
	$writer->send('COMMIT');
	at_point($node, $writer);
	$other->answers($call{renew}->(), 'ok', "renewal beside a guard at $point: is not held up");
	$third->value('SELECT pg_sleep(3)') if $point eq 'before-seal';
	free_point($holder, $point);
	$writer->answers(undef, '', "renewal beside a guard at $point: the guarded transaction commits");
	is(written(), 1, "renewal beside a guard at $point: written");

	held();
	hold_point($holder, $point) if $point ne 'check';
	stand_at($other, $point);
	stand_at($writer, '');
	$other->send($call{renew}->());
	at_point($node, $other) if $point ne 'check';
	guard($writer);
	$writer->answers('COMMIT', '', "guard beside a renewal at $point: is not held up");
	free_point($holder, $point) if $point ne 'check';
	$other->answers(undef, 'ok', "guard beside a renewal at $point: the renewal commits");
	is(written(), 1, "guard beside a renewal at $point: written");
	stand_at($other, '');
}

# A renewal that shortens the lease after the seal takes nothing from it.
held();
hold_point($holder, 'check');
stand_at($writer, 'check');
guard($writer);
$writer->send('COMMIT');
at_point($node, $writer);
$other->answers("SELECT status FROM lease.renew('$key', 'w', 1, '1 s')", 'ok', 'shortened after the seal');
lapse();
free_point($holder, 'check');
$writer->answers(undef, '', 'shortened after the seal: the guarded transaction commits, it was live at the seal');

# --- Precedence: who waits for sealed guards to go is not passed by later ones.
foreach my $end ('commit', 'cancel', 'terminate', 'stand still')
{
	my $name = "a release that waits for a sealed guard, then $end";
	my $releaser = session($node);
	my $late = session($node);
	held($end eq 'stand still' ? '4 s' : '1 hour');
	hold_point($holder, 'sealed');
	stand_at($writer, 'sealed');
	guard($writer);
	guard($late);
	$writer->send('COMMIT');
	at_point($node, $writer);
	$releaser->send($call{release}->());
	wait_for_wait($node, $releaser);
	$late->send('COMMIT');
	wait_for_wait($node, $late);
	if ($end eq 'commit')
	{
		free_point($holder, 'sealed');
		$releaser->answers(undef, 'ok', "$name: released");
		$late->answers(undef, 'LE003', "$name: the later guard comes after it");
	}
	elsif ($end eq 'stand still')
	{
		kill 'STOP', $releaser->pid;
		$late->answers(undef, 'LE001', "$name: it keeps guards waiting until its deadline and no longer");
		row_is($node, "SELECT state FROM lease.inspect('$key')", 'lapsed', "$name: not before");
		free_point($holder, 'sealed');
		$writer->answer;
		# the next term is nothing to do with it
		$third->answers("SELECT epoch FROM lease.acquire('$key', 'w', '1 hour')", '3', "$name: the key can be had, the epoch it told is not told again");
		$late->value("BEGIN; SELECT lease.guard('$key', 'w', 3)");
		$late->answers('COMMIT', '', "$name: the next term's guards go on beside it");
		kill 'CONT', $releaser->pid;
		$releaser->answers(undef, 'LE001', "$name: it is told when it goes on");
		row_is($node, "SELECT state_of('$key')", 'held w 3', "$name: and changes nothing");
	}
	else
	{
		value($node, "SELECT pg_${end}_backend(" . $releaser->pid . ')');
		$late->answers(undef, '', "$name: the later guard goes on");
		free_point($holder, 'sealed');
	}
	$writer->answer unless $end eq 'stand still';
	is(written(), $end eq 'commit' || $end eq 'stand still' ? 1 : 2, "$name: written accordingly");
	$_->quit foreach $releaser, $late;
}

# --- Hundreds of guarded transactions sealed at once, on one key, and a release that takes its turn after all of them.
my $many = 200;
held();
hold_point($holder, 'sealed');
my $script = PostgreSQL::Test::Utils::tempdir() . '/guard.sql';
PostgreSQL::Test::Utils::append_to_file($script, qq{
SET pg_lease.test_points = 'sealed';
BEGIN;
SELECT lease.guard('$key', 'w', 1);
INSERT INTO written VALUES ('$key', 'one of many');
COMMIT;
});
my ($out, $err) = ('', '');
my $bench = IPC::Run::start([ $node->installed_command('pgbench'), '-n', '-c', $many, '-t', 1, '-f', $script, '-h', $node->host, '-p', $node->port, 'postgres' ],
	'>', \$out, '2>', \$err);
$node->poll_query_until('postgres', "SELECT count(*) = $many FROM pg_stat_activity WHERE wait_event = 'advisory'") or die "they do not come to the point: $err";
pass("$many guarded transactions are sealed at once");
$other->send($call{release}->());
wait_for_wait($node, $other);
free_point($holder, 'sealed');
$other->answers(undef, 'ok', 'the release comes after them');
is(written(), $many, 'all of them are visible by then');
ok(IPC::Run::finish($bench), 'all of them committed') or diag($err);

# --- A stream of guarded transactions keeps nobody from releasing.
foreach my $what ('release', 'force_release')
{
	held();
	my $stream = PostgreSQL::Test::Utils::tempdir() . "/stream_$what.sql";
	PostgreSQL::Test::Utils::append_to_file($stream, qq{
BEGIN;
SELECT lease.guard('$key', 'w', 1);
INSERT INTO written VALUES ('$key', 'w');
COMMIT;
});
	$bench = IPC::Run::start([ $node->installed_command('pgbench'), '-n', '-c', 16, '-j', 2, '-T', 60, '-f', $stream, '-h', $node->host, '-p', $node->port, 'postgres' ],
		'>', \$out, '2>', \$err);
	$node->poll_query_until('postgres', "SELECT count(*) > 1000 FROM written WHERE key = '$key'") or die 'no stream';
	$began = time;
	$other->answers($call{$what}->(), $what eq 'release' ? 'ok' : 'w|1', "$what against a stream of guards");
	cmp_ok(time - $began, '<', 50, "$what against a stream of guards: while it flows");
	my $written = written();
	IPC::Run::finish($bench);
	is(written(), $written, "$what against a stream of guards: none of them commits after it");
}

row_is($node, 'SELECT count(*) FROM lease.claims', '0', 'no claim is left');
$node->stop;

done_testing();
