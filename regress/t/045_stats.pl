# lease.stats: each column is moved by what it counts, and by nothing else; lease.reset_stats() sets them back; other databases have
# counters of their own.
# Proves: I10, I11, A1

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

my $node = lease_cluster('stats');
my ($a, $b) = map { session($node) } 1 .. 2;
my %tested;

# What is counted by whoever waits: tested below by itself, and in the tests of waits.
my @waits = qw(waits wake_ups hand_offs passed_over safety_ticks safety_ticks_that_helped timeouts deadlocks cancelled_waits);
# What the sweeper does at its own pace, tested below by itself.
my @sweeps = qw(lapses_swept sweep_passes sweep_rows ring_overflows rescans sweep_delay_last sweep_delay_max);

sub stats
{
	my $rows = value($node, q{SELECT j.key || '=' || j.value FROM lease.stats s, LATERAL jsonb_each_text(to_jsonb(s)) j});
	return { map { split /=/, $_, 2 } split /\n/, $rows };
}

# Test: what $do does to the columns that calls move.
sub moves
{
	my ($do, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $before = stats();
	$do->();
	my $after = stats();
	my %moved;

	foreach my $column (sort keys %$after)
	{
		next if grep { $_ eq $column } @waits, @sweeps, 'database', 'stats_reset';
		my $by = $after->{$column} - $before->{$column};
		$moved{$column} = $by if $by;
	}
	$tested{$_} = 1 foreach keys %$expected;
	return is_deeply(\%moved, $expected, $name) || diag(explain(\%moved));
}

$node->poll_query_until('postgres', q{SELECT status = 'running' FROM lease.sweepers WHERE database = 'postgres'}) or die 'no sweeper';

moves(sub { $a->value(q{SELECT lease.acquire('k', 'ann', '1 hour')}) }, { grants => 1 }, 'a grant');
moves(sub { $a->value(q{SELECT lease.acquire('k', 'ann', '1 hour')}) }, { grants => 1, regrants => 1 }, 'a grant to the holder');
moves(sub { $a->value(q{SELECT lease.acquire('k', 'bob', '1 hour')}) }, { denials => 1 }, 'a denial');
moves(sub { $a->value(q{SELECT lease.renew('k', 'ann', 2, '1 hour')}) }, { renewals => 1 }, 'a renewal');
moves(sub { $a->value(q{BEGIN; SELECT lease.renew('k', 'ann', 2, '1 hour'); ROLLBACK}) }, {}, 'nothing, for what is rolled back (I10)');
moves(sub { $a->value(q{SELECT lease.renew('k', 'bob', 2, '1 hour')}) }, { refused_not_owner => 1 }, 'renew: not_owner');
moves(sub { $a->value(q{SELECT lease.release('k', 'bob', 2)}) }, { refused_not_owner => 1 }, 'release: not_owner');
moves(sub { $a->value(q{SELECT lease.renew('k', 'ann', 1, '1 hour')}) }, { refused_epoch_mismatch => 1 }, 'renew: epoch_mismatch');
moves(sub { $a->value(q{SELECT lease.release('k', 'ann', 1)}) }, { refused_epoch_mismatch => 1 }, 'release: epoch_mismatch');
moves(sub { $a->value(q{SELECT lease.release('k', 'ann', 2)}) }, { releases => 1 }, 'a release');
moves(sub { $a->value(q{BEGIN; SELECT lease.acquire('k', 'ann', '1 hour'); SELECT lease.renew('k', 'ann', 4, '2 hours'); COMMIT}) }, { grants => 1 }, 'one transaction, one grant');

# Lapses: swept, and met by somebody before that.
my $before = stats();
$a->value(q{SELECT lease.acquire('swept', 'ann', '600 ms')});
$node->poll_query_until('postgres', q{SELECT state = 'l' FROM lease.entry WHERE key = 'swept'}) or die 'not swept';
my $after;
# the table shows it first
foreach (1 .. 100) { $after = stats(); last if $after->{lapses_swept} > $before->{lapses_swept}; select undef, undef, undef, 0.1; }
is($after->{$_} - $before->{$_}, 1, "a lapse swept: $_") foreach qw(lapses_swept sweep_passes sweep_rows);
row_is($node, q{SELECT sweep_delay_last > '0', sweep_delay_last <= sweep_delay_max FROM lease.stats}, 't|t', 'a lapse swept: its delay');
$tested{$_} = 1 foreach qw(lapses_swept sweep_passes sweep_rows sweep_delay_last sweep_delay_max);
moves(sub { $a->value(q{SELECT lease.renew('swept', 'ann', 1, '1 hour')}) }, { refused_lapsed => 1 }, 'renew: lapsed');
moves(sub { $a->value(q{SELECT lease.release('swept', 'ann', 1)}) }, { refused_lapsed => 1 }, 'release: lapsed');
moves(sub { $a->value(q{SELECT lease.acquire('swept', 'bob', '1 hour')}) }, { grants => 1, takeovers => 1 }, 'a takeover of a swept lease');

my $sweeper = value($node, q{SELECT pid FROM lease.sweepers WHERE database = 'postgres'});
kill 'STOP', $sweeper;
$a->value(q{SELECT lease.acquire('met', 'ann', '500 ms')});
$a->value('SELECT pg_sleep(0.6)');
moves(sub { $a->value(q{SELECT lease.acquire('met', 'bob', '1 hour')}) }, { grants => 1, takeovers => 1, lapses_found => 1 }, 'a takeover before the sweep');
$a->value(q{SELECT count(*) FROM generate_series(1, 5000) i, LATERAL lease.acquire('many ' || i, 'ann', '4 s')});
$before = stats();
kill 'CONT', $sweeper;
$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM lease.entry WHERE state = 'h' AND key LIKE 'many%'}) or die 'not swept';
$after = stats();
foreach (qw(ring_overflows rescans)) { is($after->{$_} - $before->{$_}, 1, "the sweeper outrun: $_"); $tested{$_} = 1; }

# Broken claims, and what becomes of their transactions.
$a->value(q{BEGIN; SELECT lease.acquire('broken', 'ann', '200 ms')});
$b->value('SELECT pg_sleep(0.3)');
moves(sub { $b->value(q{SELECT lease.acquire('broken', 'bob', '1 hour')}) }, { grants => 1, broken_claims => 1 }, 'a claim broken');
moves(sub { is($a->run('COMMIT')->{state}, 'LE001', 'its transaction cannot commit') }, { commit_refusals => 1 }, 'a commit refused');

# Waits. Each way to end one moves its own column, and no other of the ends.
sub ends
{
	my ($do, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $before = stats();
	$do->();
	my $after = stats();

	foreach my $column (qw(hand_offs passed_over timeouts deadlocks cancelled_waits))
	{
		is($after->{$column} - $before->{$column}, $expected->{$column} // 0, "$name: $column");
	}
	foreach my $column (grep { $expected->{$_} } qw(waits wake_ups safety_ticks))
	{
		cmp_ok($after->{$column} - $before->{$column}, '>=', $expected->{$column}, "$name: $column");
	}
	$tested{$_} = 1 foreach keys %$expected;
	return;
}
$a->value(q{SELECT lease.acquire('w', 'ann', '1 hour')});
ends(sub {
	$b->send(q{SELECT acquired FROM lease.acquire('w', 'bob', '1 hour', '1 min')});
	wait_for_wait($node, $b);
	$a->value(q{SELECT lease.release('w', 'ann', 1)});
	$b->answers(undef, 't', 'handed over');
}, { waits => 1, wake_ups => 1, hand_offs => 1 }, 'a release to a waiter');
# the look for a deadlock is a timer of its own
ends(sub { is($a->run(q{SET deadlock_timeout = '10min'; SELECT lease.acquire('w', 'ann', '1 hour', '2500 ms'); RESET deadlock_timeout})->{state}, '57014', 'timed out') }, { waits => 1, safety_ticks => 1, timeouts => 1 }, 'a wait that runs out of time');
ends(sub { is($a->run(q{SET lock_timeout = '200ms'; SELECT lease.acquire('w', 'ann', '1 hour', '1 min'); RESET lock_timeout})->{state}, '55P03', 'lock_timeout') }, { waits => 1, cancelled_waits => 1 }, 'a wait that lock_timeout ends');
ends(sub { is($a->run(q{SET statement_timeout = '200ms'; SELECT lease.acquire('w', 'ann', '1 hour', '1 min'); RESET statement_timeout})->{state}, '57014', 'cancelled') }, { waits => 1, cancelled_waits => 1 }, 'a wait that is cancelled');
ends(sub {
	my $ended = session($node);
	$ended->send(q{SELECT acquired FROM lease.acquire('w', 'ann', '1 hour', '1 min')});
	wait_for_wait($node, $ended);
	$b->value('SELECT pg_terminate_backend(' . $ended->pid . ')');
	wait_until_gone($node, $ended->pid);
}, { waits => 1 }, 'a wait whose session is terminated');
ends(sub {
	$a->value(q{BEGIN; SELECT lease.acquire('d1', 'ann', '1 hour')});
	$b->value(q{BEGIN; SELECT lease.acquire('d2', 'bob', '1 hour')});
	$a->send(q{SELECT acquired FROM lease.acquire('d2', 'ann', '1 hour', '1 min')});
	wait_for_wait($node, $a);
	$b->send(q{SELECT acquired FROM lease.acquire('d1', 'bob', '1 hour', '1 min')});
	my $victim;
	until (($victim) = grep { !$_->busy } ($a, $b)) { select undef, undef, undef, 0.05; }
	is($victim->answer->{state}, '40P01', 'one of the two');
	$victim->value('ROLLBACK');
	($victim == $a ? $b : $a)->answers(undef, 't', 'and the other goes on');
	$_->run('ROLLBACK') foreach ($a, $b);
}, { waits => 2, deadlocks => 1, hand_offs => 1 }, 'a ring');
my $c = session($node);
$a->value(q{SELECT lease.acquire('p', 'ann', '1 hour')});
ends(sub {
	foreach my $waiter ($b, $c)
	{
		$waiter->send(q{SELECT acquired, epoch FROM lease.acquire('p', 'bob' || pg_backend_pid(), '1 hour', '1 min')});
		wait_for_wait($node, $waiter);
	}
	kill 'STOP', $b->pid;
	$a->value(q{SELECT lease.release('p', 'ann', 1)});
	$c->answers(undef, 't|3', 'the second in the queue has it');
	kill 'CONT', $b->pid;
	$c->value(q{SELECT lease.release('p', 'bob' || pg_backend_pid(), 3)});
	$b->answers(undef, 't|5', 'and then the first');
}, { waits => 2, passed_over => 1, hand_offs => 3 }, 'a first waiter that does not come');
$c->quit;

# All of them, set back. (safety_ticks_that_helped stays 0, but for a frozen process: t/020_wait_offsets.pl.)
is_deeply([ sort(keys %tested, 'safety_ticks_that_helped') ], [ sort grep { $_ !~ /^(?:database|stats_reset)$/ } keys %{ stats() } ], 'every column was moved');
my $now = value($node, 'SELECT lease.now()');
$a->value('SELECT lease.reset_stats()');
$after = stats();
is(join(' ', grep { $after->{$_} !~ /^(?:0|00:00:00)$/ } sort keys %$after), 'database stats_reset', 'reset_stats: all of them are 0');
row_is($node, "SELECT stats_reset >= '$now', database FROM lease.stats", 't|postgres', 'since when');
$node->safe_psql('postgres', q{CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA lease TO app});
is(session($node, setup => 'SET ROLE app')->run('SELECT lease.reset_stats()')->{state}, '42501', 'reset_stats is the DBA\'s');
is(session($node, setup => 'SET ROLE app')->run('SELECT * FROM lease.stats, lease.sweepers')->{state}, '00000', 'looking is everybody\'s who may use leases');

# Another database counts for itself (I11).
$node->safe_psql('postgres', 'CREATE DATABASE other');
create_lease($node, 'other');
moves(sub { $node->safe_psql('other', q{SELECT lease.acquire('k', 'ann', '1 hour')}) }, {}, 'nothing, for what happens in another database');
is(value($node, 'SELECT database, grants FROM lease.stats', 'other'), 'other|1', 'which counts it');
$node->safe_psql('other', 'SELECT lease.reset_stats()');
$a->value(q{SELECT lease.acquire('k2', 'ann', '1 hour')});
row_is($node, 'SELECT grants FROM lease.stats', '1', 'and sets back its own');

$_->quit foreach ($a, $b);
$node->stop;
done_testing();
