# What the extension takes for granted of PostgreSQL's insides, version by version, where no header promises it: the order of
# transaction callbacks, when a transaction counts as over, what has been put away by then.
# With the library of `make test-points`.
# Proves: I1, I6, failure row "Client crashes mid-operation"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

die "PG_LEASE_TEST_LIBDIR must name the folder of the library with test points (make installcheck sets it)\n"
  unless -e ($ENV{PG_LEASE_TEST_LIBDIR} // '') . '/pg_lease.so';

my $node = lease_cluster('internals', conf => "dynamic_library_path = '$ENV{PG_LEASE_TEST_LIBDIR}:\$libdir'\nshared_preload_libraries = '$ENV{PG_LEASE_TEST_LIBDIR}/pg_lease'\n");
value($node, q{CREATE FUNCTION observe() RETURNS void AS 'pg_lease', 'lease_test_observe' LANGUAGE c});
my ($a, $b, $gate) = map { session($node) } 1 .. 3;
my $log_at;

sub hold { my ($point) = @_; $gate->value("SELECT pg_advisory_lock(125534, hashtext('$point'))"); return; }
sub go_on { $gate->value('SELECT pg_advisory_unlock_all()'); return; }
sub logged { return PostgreSQL::Test::Utils::slurp_file($node->logfile, $log_at); }
# A's COMMIT, held at the point
sub commit_up_to
{
	my ($point) = @_;
	hold($point);
	$log_at = -s $node->logfile;
	$a->send('COMMIT');
	$node->poll_query_until('postgres', 'SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND pid = ' . $a->pid) or die 'does not come to the point';
	return;
}

# --- Callbacks run last registered first: whoever registers after the preloading is called before us, so that nothing of
# others comes between our seal and the end of the transaction.
$a->value('SELECT observe()');
$a->value(q{BEGIN; SET LOCAL pg_lease.test_points = 'before-seal'; SELECT lease.acquire('order', 'ann', '1 hour')});
commit_up_to('before-seal');
like(logged(), qr/observer: pre-commit, running: 1/, 'pre-commit: a callback registered later has run before ours');
unlike(logged(), qr/observer: committed/, 'pre-commit: and nothing is committed');
go_on();
$a->answers(undef, '', 'the commit goes on');

# --- The number of its local transaction goes when the commit becomes visible, before any commit callback: from then on the
# claim that is still there is no one's.
$a->value(q{BEGIN; SELECT lease.acquire('seen', 'ann', '1 hour'); SELECT lease.release('order', 'ann', 1)});
commit_up_to('observed');
like(logged(), qr/observer: committed, running: 0/, 'committed: the transaction is over when callbacks are called');
$b->answers(q{SELECT state_of('seen'), state_of('order')}, 'held ann 1|free 2', 'committed: others see all of it before our callback has run');
$b->answers(q{SELECT status FROM lease.renew('seen', 'ann', 1, '1 hour')}, 'ok', 'committed: and change it at once');
$b->answers(q{SELECT acquired, epoch FROM lease.acquire('order', 'bob', '1 hour')}, 't|3', 'committed: released keys too');
go_on();
$a->answers(undef, '', 'and its own callback comes to what has gone on without it');
row_is($node, q{SELECT state_of('seen'), state_of('order'), count(*) FROM lease.claims}, 'held ann 1|held bob 3|0', 'nothing was changed by that, nothing is left');

# --- PostgreSQL puts statement_timeout away before a commit begins; a wait in pre-commit heeds it all the same.
$a->value(q{SELECT lease.acquire('guarded', 'w', '1 hour')});
$a->value(q{BEGIN; SET LOCAL pg_lease.test_points = 'sealed'; SELECT lease.guard('guarded', 'w', 1)});
commit_up_to('sealed');
$b->value(q{SET statement_timeout = '300 ms'; BEGIN; SELECT lease.release('guarded', 'w', 1)});
$b->answers('COMMIT', '57014', 'statement_timeout ends a wait in pre-commit');
$b->value(q{RESET statement_timeout});
go_on();
$a->answers(undef, '', 'the guarded commit goes on');
row_is($node, q{SELECT state_of('guarded'), count(*) FROM lease.claims}, 'held w 1|0', 'and the release was undone');

# --- Nor does PostgreSQL bound the wait for the lock on the table there by it. What ends such a wait elsewhere ends it, too.
my $table = session($node);
value($node, q{CREATE TABLE other ()});
sub table_locked
{
	my ($key, $setting, $call) = @_;
	$call //= qq{SELECT lease.acquire('$key', 'bob', '1 hour')};
	$b->value(qq{$setting; BEGIN; $call; LOCK TABLE other});
	# to read the table is all that a commit with nothing but guards does
	$table->value('BEGIN; LOCK TABLE lease.entry IN ' . ($call =~ /guard/ ? 'ACCESS EXCLUSIVE' : 'SHARE') . ' MODE');
	$b->send('COMMIT');
	$node->poll_query_until('postgres', 'SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND pid = ' . $b->pid) or die 'does not wait for the table';
	return;
}
foreach my $case (
	[ 'statement_timeout', q{SET statement_timeout = '300 ms'}, '57014', qr/statement timeout/ ],
	[ 'statement_timeout of a guarded commit', q{SET statement_timeout = '300 ms'}, '57014', qr/statement timeout/, q{SELECT lease.guard('guarded', 'w', 1)} ],
	[ 'lock_timeout', q{SET statement_timeout = '10 min'; SET lock_timeout = '300 ms'}, '55P03', qr/lock timeout/ ],
	[ 'a cancel', q{SET statement_timeout = '10 min'; SET lock_timeout = 0}, '57014', qr/user request/ ])
{
	my ($how, $setting, $state, $message, $call) = @$case;

	table_locked($how, $setting, $call);
	value($node, 'SELECT pg_cancel_backend(' . $b->pid . ')') if $how eq 'a cancel';
	my $answer = $b->answer;
	is($answer->{state}, $state, "$how ends the wait for the table");
	like($answer->{message}, $message, "$how: and is what the message says");
	$table->value('ROLLBACK');
	row_is($node, qq{SELECT state_of('$how'), count(*) FROM lease.claims}, 'free 0|0', "$how: nothing was changed, nothing is left");
}
# the table's owner waits for what the committing transaction has locked: a deadlock of PostgreSQL's own
table_locked('deadlock', q{SET statement_timeout = '10 min'});
$table->send('LOCK TABLE other');
my @ends = map { $_->answer->{state} } $table, $b;
is_deeply([ sort @ends ], [ '00000', '40P01' ], 'a deadlock over the table is seen');
$table->run('ROLLBACK');
# the time of a wait that was none too long is not held against what follows
table_locked('in time', q{SET statement_timeout = '2 s'});
$table->value('ROLLBACK');
$b->answers(undef, '', 'a wait for the table that ends in time');
$b->value(q{\! sleep 2.5});
$b->answers(q{SELECT state_of('in time')}, 'held bob 1', 'and statement_timeout begins anew with the next statement');
# statements of one message have a time of their own each, and so has the commit
$table->value(q{BEGIN; LOCK TABLE lease.entry IN SHARE ROW EXCLUSIVE MODE});
$b->send(q{BEGIN\; SELECT lease.acquire('one message', 'bob', '1 hour')\; SELECT pg_sleep(1.2)\; SELECT pg_sleep(1.2)\; COMMIT});
$node->poll_query_until('postgres', 'SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND pid = ' . $b->pid) or die 'does not wait for the table';
$table->value('ROLLBACK');
is($b->answer->{state}, '00000', 'a commit that comes late in its message waits for the table');
row_is($node, q{SELECT state_of('one message')}, 'held bob 1', 'and is made');
$b->value(q{RESET statement_timeout; RESET lock_timeout});
$table->quit;

# --- A backend that is terminated with a transaction open runs the abort callback, with shared memory still there.
$a->value(q{BEGIN; SELECT lease.acquire('terminated', 'ann', '1 hour')});
$log_at = -s $node->logfile;
value($node, 'SELECT pg_terminate_backend(' . $a->pid . ')');
wait_until_gone($node, $a->pid);
like(logged(), qr/observer: aborted/, 'terminated: the abort callback is called');
row_is($node, q{SELECT count(*) FROM lease.claims}, '0', 'terminated: the claim went with it');
$b->answers(q{SELECT acquired, epoch FROM lease.acquire('terminated', 'bob', '1 hour')}, 't|1', 'terminated: the key is free at once');

$_->quit foreach $a, $b, $gate;
$node->stop;

done_testing();
