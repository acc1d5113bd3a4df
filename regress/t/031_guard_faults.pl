# A guarded transaction meets a fault at each step between its COMMIT and the end of its guard: what it wrote is there as a whole
# or not at all, and nothing is left that would hold up others.
# Proves: I3, I6, I10, D1, D4, failure row "Operation transaction aborts", failure row "Client crashes mid-operation",
#   failure row "Server crash (unclean)"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use LeasePoints;
use Test::More;

my $node = points_cluster('guard_faults', conf => "wal_level = replica\nmax_wal_senders = 2\n");
$node->safe_psql('postgres', q{
	CREATE TABLE written (key text, term bigint);
	CREATE TRIGGER fence BEFORE INSERT OR UPDATE OR DELETE ON written FOR EACH ROW EXECUTE FUNCTION lease.fence('key', 'term');
});
my $n = 0;

# The points in their order; whether the guarded write counts from there on.
my @points = ([ 'before-seal', 0 ], [ 'check', 0 ], [ 'sealed', 0 ], [ 'written', 0 ], [ 'visible', 1 ]);

# A guarded transaction that also renews, so that every step there is has something to do.
sub begin
{
	my ($session, $key) = @_;
	$session->value("BEGIN; SELECT lease.guard('$key', 'w', 1); INSERT INTO written VALUES ('$key'); SELECT status FROM lease.renew('$key', 'w', 1, '2 hours')");
	return;
}

foreach my $case (@points)
{
	my ($point, $counts) = @$case;

	foreach my $fault ('cancel', 'terminate', 'error', 'panic', 'kill')
	{
		next if $point eq 'visible' && $fault =~ /error|panic/;    # nothing can be raised there
		my $name = "$fault at $point";
		my $key = 'key ' . ++$n;
		my ($writer, $holder) = map { session($node) } 1 .. 2;

		$holder->value("SELECT lease.acquire('$key', 'w', '1 hour')");
		begin($writer, $key);
		my $log_at = -s $node->logfile;
		if ($fault =~ /error|panic/)
		{
			$writer->value("SET LOCAL pg_lease.test_points = '$point=$fault'");
			$writer->answers('COMMIT', $fault eq 'error' ? 'LE998' : 'XX000', "$name: reported");
		}
		else
		{
			hold_point($holder, $point);
			$writer->value("SET LOCAL pg_lease.test_points = '$point'");
			$writer->send('COMMIT');
			at_point($node, $writer);
			if ($fault eq 'kill')
			{
				kill 'KILL', $writer->pid;
				$writer->answer;
				$node->wait_for_log(qr/all server processes terminated; reinitializing/, $log_at);
				$node->poll_query_until('postgres', undef, '') or die 'the server does not come back';
				eval { $_->quit } foreach $writer, $holder;
				$holder = session($node);
			}
			else
			{
				value($node, "SELECT pg_${fault}_backend(" . $writer->pid . ')');
				# past the point where it could be undone, the commit goes on when it is let go
				free_point($holder, $point) if $counts;
				my $answer = $writer->answer;
				# a commit that counts may still have been reported
				if ($fault eq 'terminate') { ok($counts || $answer->{gone}, "$name: the session ends"); }
				else { is($answer->{state}, $counts ? '00000' : '57014', "$name: reported"); }
				free_point($holder, $point) unless $counts;
				wait_until_gone($node, $writer->pid) if $fault eq 'terminate';
			}
		}
		row_is($node, "SELECT count(*) FROM written WHERE key = '$key' AND term = 1", $counts, "$name: written or not");
		row_is($node, "SELECT remaining > '1 hour', owner, epoch FROM lease.inspect('$key')", ($counts ? 't' : 'f') . '|w|1', "$name: renewed or not");
		row_is($node, 'SELECT count(*) FROM lease.claims', '0', "$name: no claim is left");
		# what is left of a guard would hold up the release, and then the next acquire
		$holder->answers("SET statement_timeout = '10 s'; SELECT status FROM lease.release('$key', 'w', 1)", 'ok', "$name: no guard is left");
		$holder->answers("SELECT acquired, epoch FROM lease.acquire('$key', 'x', '1 hour', '10 s')", 't|3', "$name: the key can be had");
		eval { $_->quit } foreach $writer, $holder;
	}
}

# --- Between the flush and visible, where a synchronous standby that does not answer holds the commit: the next term waits for it.
$node->append_conf('postgresql.conf', "synchronous_standby_names = 'nobody'\nsynchronous_commit = local\n");
$node->reload;
foreach my $fault ('cancel', 'terminate', 'kill')
{
	my $name = "$fault while the commit waits for a standby";
	my $key = 'key ' . ++$n;
	my ($writer, $other) = map { session($node) } 1 .. 2;

	$other->value("SELECT lease.acquire('$key', 'w', '1 hour')");
	begin($writer, $key);
	my $log_at = -s $node->logfile;
	$writer->value('SET LOCAL synchronous_commit = on');
	$writer->send('COMMIT');
	$node->poll_query_until('postgres', "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = " . $writer->pid) or die 'does not wait for the standby';
	$other->send("SELECT status FROM lease.release('$key', 'w', 1)");
	wait_for_wait($node, $other);
	row_is($node, "SELECT count(*) FROM written WHERE key = '$key'", 0, "$name: not visible");
	row_is($node, "SELECT state_of('$key')", 'held w 1', "$name: nor is the release");
	if ($fault eq 'kill')
	{
		kill 'KILL', $writer->pid;
		$writer->answer;
		eval { $other->answer };
		$node->wait_for_log(qr/all server processes terminated; reinitializing/, $log_at);
		$node->poll_query_until('postgres', undef, '') or die 'the server does not come back';
		row_is($node, "SELECT state_of('$key')", 'held w 1', "$name: the release did not happen");
		row_is($node, "SELECT status FROM lease.release('$key', 'w', 1)", 'ok', "$name: it can be done now");
	}
	else
	{
		value($node, "SELECT pg_${fault}_backend(" . $writer->pid . ')');
		$other->answers(undef, 'ok', "$name: the release goes on once the guarded transaction is visible");
		$writer->answer;
	}
	row_is($node, "SELECT count(*) FROM written WHERE key = '$key' AND term = 1", 1, "$name: what was flushed stays");
	eval { $_->quit } foreach $writer, $other;
}
$node->stop;

done_testing();
