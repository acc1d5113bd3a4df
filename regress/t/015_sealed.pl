# A transaction held at named points of its commit: before the seal it can still be passed by; from the seal until its commit is
# visible it can not, not even past its deadline; ended there, it has changed nothing.
# With the library of `make test-points`.
# Proves: I1, I2, I3, I6, D1, D2, failure row "Client crashes mid-operation", failure row "Server crash (unclean)"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

die "PG_LEASE_TEST_LIBDIR must name the folder of the library with test points (make installcheck sets it)\n"
  unless -e ($ENV{PG_LEASE_TEST_LIBDIR} // '') . '/pg_lease.so';

my $node = lease_cluster('sealed', conf => "dynamic_library_path = '$ENV{PG_LEASE_TEST_LIBDIR}:\$libdir'\nshared_preload_libraries = '$ENV{PG_LEASE_TEST_LIBDIR}/pg_lease'\n");
my ($a, $b, $gate) = map { session($node) } 1 .. 3;

sub hold { my ($point) = @_; $gate->value("SELECT pg_advisory_lock(125534, hashtext('$point'))"); return; }
sub go_on { $gate->value('SELECT pg_advisory_unlock_all()'); return; }
# A's COMMIT, held at the point
sub commit_up_to
{
	my ($point) = @_;
	hold($point);
	$a->value("SET LOCAL pg_lease.test_points = '$point'");
	$a->send('COMMIT');
	$node->poll_query_until('postgres', 'SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND pid = ' . $a->pid) or die 'does not come to the point';
	return;
}

# --- Before the seal: as idle as ever.
$a->value(q{BEGIN; SELECT lease.acquire('unsealed', 'ann', '1 s')});
commit_up_to('before-seal');
$b->answers(q{SELECT acquired FROM lease.acquire('unsealed', 'bob', '1 hour')}, 'f', 'before the seal: denied');
$b->answers(q{SELECT sealed FROM lease.claims WHERE kind <> 'maintenance'}, 'f', 'before the seal: shown as not sealed');
$b->value('SELECT pg_sleep(1)');
$b->answers(q{SELECT acquired, epoch FROM lease.acquire('unsealed', 'bob', '1 hour')}, 't|2', 'before the seal: passed by at its deadline');
go_on();
$a->answers(undef, 'LE001', 'and then LE001');

# --- Sealed, and sealed with its row written.
foreach my $point ('sealed', 'written')
{
	my $key = "held at $point";

	# past its deadline
	$a->value(qq{BEGIN; SELECT lease.acquire('$key', 'ann', '1 s')});
	commit_up_to($point);
	$b->answers(q{SELECT key, kind, sealed FROM lease.claims WHERE kind <> 'maintenance'}, "$key|transition|t", "$point: shown as sealed");
	$b->answers(qq{SELECT acquired FROM lease.acquire('$key', 'bob', '1 hour')}, 'f', "$point: denied");
	$b->answers(qq{SELECT state, in_flight FROM lease.inspect('$key')}, 'free|t', "$point: not to be seen yet");
	$b->answers(qq{SELECT status FROM lease.renew('$key', 'bob', 1, '1 hour')}, 'not_owner', "$point: refused at once");
	$b->value('SELECT pg_sleep(1)');
	$b->answers(qq{SELECT acquired FROM lease.acquire('$key', 'bob', '1 hour')}, 'f', "$point: not to be passed by, not even past its deadline");
	go_on();
	$a->answers(undef, '', "$point: it commits");
	$b->answers(qq{SELECT state_of('$key')}, 'lapsed 1', "$point: what it wrote has lapsed by then");
	$b->answers(qq{SELECT acquired, epoch FROM lease.acquire('$key', 'bob', '1 hour')}, 't|2', "$point: and is taken over with a greater epoch");

	# a renewal of the same name waits for it
	$a->value(qq{SELECT lease.acquire('$key: renewed', 'w', '1 hour'); BEGIN; SELECT lease.release('$key: renewed', 'w', 1)});
	commit_up_to($point);
	$b->send(qq{SELECT status FROM lease.renew('$key: renewed', 'w', 1, '1 hour')});
	wait_for_wait($node, $b);
	go_on();
	$a->answers(undef, '', "$point: a release commits");
	$b->answers(undef, 'not_owner', "$point: the renewal that waited is told the outcome");

	# ended at the point
	foreach my $how ('cancel', 'terminate')
	{
		$a->value(qq{SELECT lease.acquire('$key: $how', 'ann', '1 hour')});
		$a->value(qq{BEGIN; SELECT lease.release('$key: $how', 'ann', 1); SELECT lease.acquire('$key: $how: new', 'ann', '1 hour')});
		commit_up_to($point);
		value($node, "SELECT pg_${how}_backend(" . $a->pid . ')');
		is($a->answer->{state}, $how eq 'cancel' ? '57014' : '57P01', "$point: $how ends it");
		if ($how eq 'terminate') { wait_until_gone($node, $a->pid); $a = session($node); }
		go_on();
		row_is($node, qq{SELECT state_of('$key: $how'), state_of('$key: $how: new'), open_claims()}, 'held ann 1|free 0|0', "$point: $how: nothing was changed, nothing is left");
		$b->answers(qq{SELECT acquired, epoch FROM lease.acquire('$key: $how: new', 'bob', '1 hour')}, 't|1', "$point: $how: the key is free at once");
	}
}

# --- An interrupt that comes while the rows are written is heeded before the last of them, not after the commit.
foreach my $how ('cancel', 'terminate')
{
	$a->value(qq{SELECT lease.acquire('rows: $how', 'ann', '1 hour')});
	$a->value(qq{BEGIN; SELECT lease.release('rows: $how', 'ann', 1); SELECT count(*) FROM generate_series(1, 100) i, lease.acquire('rows: $how ' || i, 'ann', '1 hour')});
	# there it waits without heeding anything
	commit_up_to('write');
	value($node, "SELECT pg_${how}_backend(" . $a->pid . ')');
	go_on();
	is($a->answer->{state}, $how eq 'cancel' ? '57014' : '57P01', "rows: $how ends it");
	if ($how eq 'terminate') { wait_until_gone($node, $a->pid); $a = session($node); }
	row_is($node, qq{SELECT state_of('rows: $how'), state_of('rows: $how 1'), open_claims()}, 'held ann 1|free 0|0', "rows: $how: nothing was changed, nothing is left");
	$b->answers(qq{SELECT acquired, epoch FROM lease.acquire('rows: $how 100', 'bob', '1 hour')}, 't|1', "rows: $how: the keys are free at once");
}

# --- The server falls over there.
foreach my $point ('sealed', 'written')
{
	foreach my $how ('the backend is killed', 'the server is stopped at once')
	{
		my $key = "$point, $how";

		$a->value(qq{SELECT lease.acquire('$key', 'ann', '1 hour')});
		$a->value(qq{BEGIN; SELECT lease.release('$key', 'ann', 1); SELECT lease.acquire('$key: new', 'ann', '1 hour')});
		commit_up_to($point);
		if ($how =~ /killed/)
		{
			my $log_at = -s $node->logfile;
			kill 'KILL', $a->pid;
			$node->wait_for_log(qr/all server processes terminated; reinitializing/, $log_at);
			$node->poll_query_until('postgres', undef, '') or die 'the server does not come back';
		}
		else { $node->stop('immediate'); $node->start; }
		row_is($node, qq{SELECT state_of('$key'), state_of('$key: new'), open_claims()}, 'held ann 1|free 0|0', "$key: nothing was changed, nothing is left");
		row_is($node, qq{SELECT status FROM lease.release('$key', 'ann', 1)}, 'ok', "$key: its holder goes on");
		row_is($node, qq{SELECT acquired, epoch FROM lease.acquire('$key', 'bob', '1 hour')}, 't|3', "$key: and so do the epochs");
		($a, $b, $gate) = map { session($node) } 1 .. 3;
	}
}
$_->quit foreach $a, $b, $gate;
$node->stop;

done_testing();
