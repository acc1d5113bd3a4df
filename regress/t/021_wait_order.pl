# A hundred waiters, a hundred releases: served in the order in which they came, and each release wakes about one of them. A head whose
# process stands still has its turn taken by the next after the grace, and loses its place but not the wait.
# Proves: I1, I2, I5, A2 (for who waits behind others), failure row "Holder hangs / network partitions (session alive)"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

my $waiters = 100;
my $node = lease_cluster('wait_order', conf => "max_connections = 130\n");
$node->safe_psql('postgres', 'CREATE TABLE granted (client int, epoch bigint, at timestamptz)');

# --- In order, with few wake-ups. By the function, by the procedure, and by both in one queue.
my %take = (
	function => q{SELECT epoch AS epoch FROM lease.acquire('k', 'w' || :client_id, '1 hour', '1 min') \gset},
	procedure => q{CALL lease.wait_acquire('k', 'w' || :client_id, '1 hour', '1 min') \gset});
$take{both} = "\\if :client_id % 2\n$take{function}\n\\else\n$take{procedure}\n\\endif";
# One round: what was counted meanwhile.
sub queue_up
{
	my ($how) = @_;
	my $script = PostgreSQL::Test::Utils::tempdir() . "/$how.sql";
	my ($in, $out) = ('', '');
	my $holder = session($node);

	(my $take = $take{$how}) =~ s/:client_id % 2/:odd/;
	PostgreSQL::Test::Utils::append_to_file($script, join "\n",
		'\set odd :client_id % 2', $take, q{SELECT lease.release('k', 'w' || :client_id, :epoch);}, 'INSERT INTO granted VALUES (:client_id, :epoch, clock_timestamp());', '');
	$holder->value('TRUNCATE granted');
	my $epoch = $holder->value(q{SELECT epoch FROM lease.acquire('k', 'holder', '1 hour')});
	my $run = IPC::Run::start([ $node->installed_command('pgbench'), '-n', '-c', $waiters, '-t', 1, '-f', $script, $node->connstr('postgres') ], '<', \$in, '>', \$out, '2>&1');
	wait_for_waiters($node, $waiters);
	$holder->value('CREATE TEMP TABLE came AS SELECT owner, position FROM lease.waiters');
	is($holder->value('SELECT count(*), min(position), max(position), count(DISTINCT owner) FROM came'), "$waiters|1|$waiters|$waiters", "$how: each has its place");
	row_is($node, q{SELECT count(*) FROM lease.waiters w JOIN pg_stat_activity a USING (pid) WHERE a.state = 'active' AND a.wait_event_type = 'Extension'},
		$waiters, "$how: and is active, waiting");
	my $before = counters($node);
	$holder->value("SELECT lease.release('k', 'holder', $epoch)");
	$run->finish;
	like($out, qr/number of transactions actually processed: $waiters\/$waiters/, "$how: all of them are served");
	my $after = counters($node);
	my %counted = map { $_ => $after->{$_} - $before->{$_} } qw(waits wake_ups hand_offs passed_over safety_ticks safety_ticks_that_helped);
	note("$how: ", join ', ', map { "$_: $counted{$_}" } sort keys %counted);
	$counted{in_order} = $holder->value(q{SELECT count(*) FROM (SELECT 'w' || client AS owner, row_number() OVER (ORDER BY epoch) AS position FROM granted) g JOIN came USING (owner, position)});
	is($holder->value("SELECT min(epoch), max(epoch) FROM granted"), join('|', $epoch + 2, $epoch + 2 * $waiters), "$how: each under an epoch of its own (I2)");
	is($counted{safety_ticks_that_helped}, 0, "$how: the safety tick never helped");
	cmp_ok($counted{hand_offs}, '<=', $waiters + $counted{passed_over}, "$how: one hand-off each, and one for each that was passed over");
	row_is($node, 'SELECT (SELECT count(*) FROM lease.claims), (SELECT count(*) FROM lease.waiters)', '0|0', "$how: nothing is left behind");
	$holder->quit;
	return %counted;
}

foreach my $how (qw(function procedure both))
{
	# who does not get to run for the length of the grace is passed over: on such a machine, in another round
	my %counted = queue_up($how);
	foreach (1 .. 4) { %counted = queue_up($how) if $counted{passed_over}; }
	is($counted{passed_over}, 0, "$how: nobody was passed over");
	is($counted{in_order}, $waiters, "$how: in the order in which they came");
	# who looks between a commit and its hand-off finds the key by itself
	cmp_ok($counted{hand_offs}, '>=', 0.9 * $waiters, "$how: handed over nearly always");
	cmp_ok($counted{wake_ups}, '<=', 1.5 * $waiters, "$how: about one wake-up per hand-off");
}

# --- A head that stands still. The key comes up by a release, by an abort, by a lapse and by the deadline of an open change.
my @late;
foreach my $round (1 .. 2)
{
	foreach my $how (qw(release abort lapse deadline))
	{
		my ($holder, $head, $second) = map { session($node) } 1 .. 3;
		my $key = "$how $round";
		my $name = "round $round, a stopped head and a key that comes up by $how";

		$holder->value('BEGIN') if $how =~ /abort|deadline/;
		$holder->value("SELECT lease.acquire('$key', 'holder', '1 hour')");
		$head->send("SELECT acquired, epoch FROM lease.acquire('$key', 'head', '1 hour', '1 min')");
		wait_for_waiters($node, 1);
		$second->send("SELECT epoch, clock_timestamp() FROM lease.acquire('$key', 'second', '1 hour', '1 min')");
		wait_for_waiters($node, 2);
		my $before = counters($node);
		kill 'STOP', $head->pid;
		my $at = value($node, 'SELECT clock_timestamp()');
		$holder->value("SELECT lease.release('$key', 'holder', 1)") if $how eq 'release';
		$holder->value('ROLLBACK') if $how eq 'abort';
		$at = $holder->value("SELECT expires_at FROM lease.renew('$key', 'holder', 1, '500 ms')") if $how =~ /lapse|deadline/;
		my ($epoch, $got) = split /\|/, $second->answer->{rows};
		my $after = counters($node);
		push @late, value($node, "SELECT round(1000 * extract(epoch FROM timestamptz '$got' - '$at'))");
		# the safety tick could have come first only by chance: see that it was not needed
		is($after->{safety_ticks_that_helped} - $before->{safety_ticks_that_helped}, 0, "$name: not by the safety tick");
		is($after->{passed_over} - $before->{passed_over}, 1, "$name: it lost its place");
		kill 'CONT', $head->pid;
		row_is($node, "SELECT owner, position FROM lease.waiters WHERE key = '$key'", 'head|1', "$name: and goes on waiting");
		$second->value("SELECT lease.release('$key', 'second', $epoch)");
		$head->answers(undef, 't|' . ($epoch + 2), "$name: and is served next");
		$_->quit foreach $holder, $head, $second;
	}
}
@late = sort { $a <=> $b } @late;
note("granted after the key came up, ms: @late");
cmp_ok($late[0], '>=', 90, 'a stopped head delays the next by the grace of 100 ms, and by no less');
cmp_ok($late[ @late / 2 ], '<', 1000, 'nor until the safety tick');
$node->stop;

done_testing();
