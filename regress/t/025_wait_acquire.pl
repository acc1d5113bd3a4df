# lease.wait_acquire waits without a snapshot, a transaction id or locks: VACUUM and CREATE INDEX CONCURRENTLY go on beside it. It commits
# first, and refuses to run where it cannot.
# Proves: I5, I10, failure row "Operation transaction aborts"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

my $sessions = 20;
my $rows = 10000;
my $node = lease_cluster('wait_acquire');
my ($holder, $a) = map { session($node) } 1 .. 2;

$node->safe_psql('postgres', qq{
	CREATE TABLE dead (i int);
	CREATE TABLE indexed AS SELECT i FROM generate_series(1, $rows) i;
	CREATE TABLE log (what text);
});

# What VACUUM can and cannot remove when the rows were deleted a moment ago.
sub vacuum
{
	my $stderr = '';

	$node->safe_psql('postgres', 'VACUUM dead');
	$node->safe_psql('postgres', "INSERT INTO dead SELECT i FROM generate_series(1, $rows) i");
	$node->safe_psql('postgres', 'DELETE FROM dead');
	$node->psql('postgres', 'VACUUM (VERBOSE) dead', stderr => \$stderr);
	my ($removed, $kept) = $stderr =~ /tuples: (\d+) removed, \d+ remain, (\d+) are dead but not yet removable/ or die "VACUUM says: $stderr";
	return "$removed removed, $kept kept";
}

# --- The point of it. The wait of the sessions is not over when the others are done.
my $epoch = $holder->value(q{SELECT epoch FROM lease.acquire('k', 'holder', '1 hour')});
my @waiting = map { session($node) } 1 .. $sessions;
$waiting[$_]->send(sprintf q{CALL lease.wait_acquire('k', 'waiter %d', '1 hour', '20 s')}, $_) foreach 0 .. $#waiting;
wait_for_waiters($node, $sessions);
is(vacuum(), "$rows removed, 0 kept", "$sessions sessions wait: VACUUM removes what is dead");
$a->answers('CREATE INDEX CONCURRENTLY ON indexed (i)', '', "$sessions sessions wait: CREATE INDEX CONCURRENTLY ends");
row_is($node, q{SELECT count(*), count(backend_xmin), count(backend_xid), count(DISTINCT state), min(state) FROM pg_stat_activity JOIN lease.waiters USING (pid)},
	"$sessions|0|0|1|active", 'all of them still wait: active, without a snapshot and a transaction id');
row_is($node, q{SELECT count(*) FROM pg_locks WHERE pid IN (SELECT pid FROM lease.waiters) AND locktype <> 'virtualxid'}, '0', 'and without a lock');
my @order = split /\n/, value($node, 'SELECT owner FROM lease.waiters ORDER BY position');
$holder->value("SELECT lease.release('k', 'holder', $epoch)");
foreach my $owner (@order)
{
	my ($i) = $owner =~ /(\d+)/;
	like($waiting[$i]->answer->{rows}, qr/^t\|\d+\|\d{4}-/, "$owner gets it in its turn");
	my ($mine) = value($node, q{SELECT epoch FROM lease.inspect('k')});
	row_is($node, q{SELECT owner FROM lease.inspect('k')}, $owner, "$owner holds it");
	$waiting[$i]->value("SELECT lease.release('k', '$owner', $mine)");
}
$_->quit foreach @waiting;

# The function holds its statement's snapshot while it waits, and says so.
$epoch = $holder->value(q{SELECT epoch FROM lease.acquire('k', 'holder', '1 hour')});
$a->send(q{SELECT acquired FROM lease.acquire('k', 'a', '1 hour', '20 s')});
wait_for_waiters($node, 1);
is(vacuum(), "0 removed, $rows kept", 'one session waits in the function: VACUUM removes nothing since');
$holder->value("SELECT lease.release('k', 'holder', $epoch)");
$a->answers(undef, 't', 'the function');
$a->value(q{SELECT lease.release('k', 'a', epoch) FROM lease.inspect('k')});

# --- Isolation levels: the new transaction takes its snapshot after the wait.
foreach my $level ('read committed', 'repeatable read', 'serializable')
{
	$a->value("SET default_transaction_isolation = '$level'");
	$epoch = $holder->value(q{SELECT epoch FROM lease.acquire('k', 'holder', '1 hour')});
	$a->send(q{CALL lease.wait_acquire('k', 'a', '1 hour', '20 s')});
	wait_for_waiters($node, 1);
	row_is($node, 'SELECT count(backend_xmin) FROM pg_stat_activity JOIN lease.waiters USING (pid)', '0', "$level: waits without a snapshot");
	$holder->value("SELECT lease.release('k', 'holder', $epoch)");
	like($a->answer->{rows}, qr/^t\|@{[ $epoch + 2 ]}\|/, "$level: is granted what was released meanwhile");
	row_is($node, q{SELECT state_of('k')}, 'held a ' . ($epoch + 2), "$level: and has committed");
	$a->value(q{SELECT lease.release('k', 'a', epoch) FROM lease.inspect('k')});
}
$a->value('RESET default_transaction_isolation');

# --- From a procedure or a DO block: what came before is committed before the wait, what it is granted with the next COMMIT.
$node->safe_psql('postgres', q{
	CREATE PROCEDURE work(finish text) LANGUAGE plpgsql AS $$
	DECLARE
		granted boolean;
		epoch bigint;
		until timestamptz;
	BEGIN
		INSERT INTO log VALUES ('before');
		PERFORM lease.acquire('other', 'a', '1 hour');
		CALL lease.wait_acquire('k', 'a', '1 hour', '20 s', granted, epoch, until);
		INSERT INTO log VALUES (concat_ws(' ', granted, epoch, until > lease.now()));
		IF finish = 'COMMIT' THEN COMMIT; ELSE RAISE EXCEPTION 'undone'; END IF;
	END $$});
foreach my $finish (qw(COMMIT ROLLBACK))
{
	$epoch = $holder->value(q{SELECT epoch FROM lease.acquire('k', 'holder', '1 hour')});
	$a->send("CALL work('$finish')");
	wait_for_waiters($node, 1);
	row_is($node, q{SELECT string_agg(what, ',') FROM log}, 'before', 'in a procedure: what came before the wait is committed');
	row_is($node, q{SELECT state, owner FROM lease.inspect('other')}, 'held|a', 'in a procedure: leases as well');
	row_is($node, 'SELECT count(backend_xmin) FROM pg_stat_activity JOIN lease.waiters USING (pid)', '0', 'in a procedure: waits without a snapshot');
	$holder->value("SELECT lease.release('k', 'holder', $epoch)");
	is($a->answer->{state}, $finish eq 'COMMIT' ? '00000' : 'P0001', "in a procedure: goes on ($finish)");
	row_is($node, q{SELECT string_agg(what, ',' ORDER BY what) FROM log}, $finish eq 'COMMIT' ? 'before,t ' . ($epoch + 2) . ' t' : 'before', "in a procedure: $finish ends what came after");
	row_is($node, q{SELECT state_of('k')}, $finish eq 'COMMIT' ? 'held a ' . ($epoch + 2) : 'free ' . ($epoch + 1), "in a procedure: $finish ends the grant");
	value($node, q{TRUNCATE log; SELECT lease.release('k', 'a', epoch) FROM lease.inspect('k')});
}
$a->answers(q{DO $$ DECLARE a boolean; e bigint; t timestamptz; BEGIN CALL lease.wait_acquire('done', 'a', '1 hour', '0', a, e, t); END $$; SELECT state_of('done')},
	'held a 1', 'in a DO block');
like($a->value(q{CALL lease.wait_acquire(wait => '0', ttl => '1 hour', owner => 'a', key => 'named')}), qr/^t\|1\|/, 'arguments by name');

# --- Where it cannot commit: 2D000, and nothing was committed. Arguments as of acquire, and a wait there must be.
$node->safe_psql('postgres', q{
	CREATE FUNCTION in_function() RETURNS void LANGUAGE plpgsql AS $$
	DECLARE a boolean; e bigint; t timestamptz;
	BEGIN
		CALL lease.wait_acquire('refused', 'a', '1 hour', '0', a, e, t);
	END $$;
	CREATE PROCEDURE in_savepoint() LANGUAGE plpgsql AS $$
	DECLARE a boolean; e bigint; t timestamptz;
	BEGIN
		BEGIN
			CALL lease.wait_acquire('refused', 'a', '1 hour', '0', a, e, t);
		EXCEPTION WHEN division_by_zero THEN
		END;
	END $$});
my $call = q{CALL lease.wait_acquire('refused', 'a', '1 hour', '0')};
$a->value(q{BEGIN; INSERT INTO log VALUES ('not to be committed')});
my $answer = $a->run($call);
is($answer->{state}, '2D000', 'in a transaction block: 2D000');
like($answer->{message}, qr/wait_acquire.*transaction block/, 'in a transaction block: the message says so');
$a->value('ROLLBACK');
row_is($node, 'SELECT count(*) FROM log', '0', 'in a transaction block: nothing was committed');
is($a->run(q{DO $$ DECLARE a boolean; e bigint; t timestamptz; BEGIN
	INSERT INTO log VALUES ('not to be committed'); CALL lease.wait_acquire('refused', 'a', '106751990 days', '0', a, e, t); END $$})->{state}, '22023', 'a ttl out of range: 22023');
row_is($node, 'SELECT count(*) FROM log', '0', 'a ttl out of range: nothing was committed');
is($a->run($_)->{state}, '2D000', "$_: 2D000") foreach 'SELECT in_function()', 'CALL in_savepoint()';
is($a->run("CALL lease.wait_acquire($_)")->{state}, '22004', "$_: 22004")
  foreach q{'refused', 'a', '1 hour', NULL}, q{NULL, 'a', '1 hour', '0'}, q{'refused', NULL, '1 hour', '0'}, q{'refused', 'a', NULL, '0'};
is($a->run("CALL lease.wait_acquire($_)")->{state}, '22023', "$_: 22023")
  foreach q{'refused', 'a', '1 hour', '-1 s'}, q{'refused', 'a', '1 hour', '1 month'}, q{'', 'a', '1 hour', '0'}, q{'refused', 'a', '0', '0'};
$a->value('SET default_transaction_read_only = on');
is($a->run($call)->{state}, '25006', 'read only: 25006');
$a->value('RESET default_transaction_read_only');
row_is($node, q{SELECT state_of('refused')}, 'free 0', 'refused: nothing was granted');
row_is($node, 'SELECT (SELECT count(*) FROM lease.claims), (SELECT count(*) FROM lease.waiters)', '0|0', 'nothing is left behind');
$_->quit foreach $holder, $a;
$node->stop;

done_testing();
