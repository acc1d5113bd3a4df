# PostgreSQL's errors pass through the library whole, a panic is an error like any other, and thousands of both leave the
# session as it was. With the library of `make test-points`, whose extra functions force them.
# Proves: I10 (whatever fails, nothing is changed and nothing stays held)

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

die "PG_LEASE_TEST_LIBDIR must name the folder of the library with test points (make installcheck sets it)\n"
  unless -e ($ENV{PG_LEASE_TEST_LIBDIR} // '') . '/pg_lease.so';

my $node = lease_cluster('errors', conf => "dynamic_library_path = '$ENV{PG_LEASE_TEST_LIBDIR}:\$libdir'\n");
my $times = 10000;
$node->safe_psql('postgres', q{
	CREATE FUNCTION lease_test_panic(message text) RETURNS void LANGUAGE c AS 'pg_lease';
	CREATE FUNCTION lease_test_error(kind int) RETURNS void LANGUAGE c AS 'pg_lease';
});
$node->safe_psql('postgres', "SELECT lease.acquire('held', 'ann', '1 hour')");
my $session = session($node);
my $pid = $session->pid;

# --- Every field of an error raised below us reaches the client.
my $answer = $session->run('SELECT lease_test_error(0)');
is($answer->{state}, 'LE999', 'an error from below: SQLSTATE');
is($answer->{message}, 'forced error', 'message');
is($answer->{detail}, 'detail of a forced error', 'detail');
is($answer->{hint}, 'hint of a forced error', 'hint');
ok($answer->{context}, 'context');
like($answer->{error}, qr/^SCHEMA NAME:  forced_schema$/m, 'schema');
like($answer->{error}, qr/^TABLE NAME:  forced_table$/m, 'table');
like($answer->{error}, qr/^COLUMN NAME:  forced_column$/m, 'column');
like($answer->{error}, qr/^CONSTRAINT NAME:  forced_constraint$/m, 'constraint');
like($answer->{error}, qr/^LINE 1: SELECT lease_test_error\(0\);\n {15}\^$/m, 'cursor position');
$answer = $session->run('SELECT lease_test_error(1)');
is($answer->{state}, '22P02', "an error of PostgreSQL's own functions");
like($answer->{message}, qr/not a number/, 'with its message');
$session->answers(q{DO $$ BEGIN PERFORM lease_test_error(0); EXCEPTION WHEN SQLSTATE 'LE999' THEN RAISE EXCEPTION USING ERRCODE = 'ZZ000'; END $$}, 'ZZ000',
	'it can be caught by its SQLSTATE');

# --- A panic is an error XX000 of this statement, without a backtrace.
$answer = $session->run(q{SELECT lease_test_panic('forced panic')});
is($answer->{state}, 'XX000', 'a panic: SQLSTATE');
like($answer->{message}, qr/internal error/, 'a panic: message says what it is');
like($answer->{error}, qr/forced panic/, 'a panic: its own words are there');
unlike($answer->{error}, qr/stack backtrace|RUST_BACKTRACE/, 'a panic: no backtrace');
$answer = $session->run(q{SELECT lease_test_panic(E'one\\ntwo\\t%s "quoted" \\U0001F600' || repeat('x', 10000))});
is($answer->{state}, 'XX000', 'a panic with a long odd message');
unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/stack backtrace|thread '.*' panicked/, 'nothing of it on the log besides the error');

# --- The transaction is aborted as by any error: what was pending is undone, a savepoint saves the rest.
$session->answers(q{BEGIN; SELECT acquired FROM lease.acquire('undone', 'ann', '1 hour'); SELECT lease_test_panic('x'); COMMIT}, 'XX000', 'a panic in a transaction');
row_is($node, q{SELECT state_of('undone'), open_claims()}, 'free 0|0', 'its changes are undone, no claim is left');
$session->run(q{BEGIN; SELECT lease.acquire('kept', 'ann', '1 hour'); SAVEPOINT s; SELECT lease.acquire('undone', 'ann', '1 hour'); SELECT lease_test_error(0)});
$session->answers('ROLLBACK TO s; COMMIT', '', 'an error under a savepoint: the rest commits');
row_is($node, q{SELECT state_of('undone'), state_of('kept')}, 'free 0|held ann 1', 'and only the rest');

# --- Ten thousand of each, caught and not caught: the session lives on, and nothing grows.
my $contexts = q{SELECT sum(total_bytes) FROM pg_backend_memory_contexts WHERE name NOT LIKE 'CachedPlan%'};
my $file = PostgreSQL::Test::Utils::tempdir();
foreach my $kind ([ 'errors' => 'lease_test_error(0)', 'LE999' ], [ 'panics' => q{lease_test_panic('x')}, 'XX000' ],
	[ 'errors of bad input' => q{lease.acquire('', 'ann', '1 hour')}, '22023' ])
{
	my ($what, $call, $state) = @$kind;
	my $caught = sub {
		my ($n) = @_;
		$session->answers(qq{
			DO \$\$
			BEGIN
				FOR i IN 1..$n LOOP
					BEGIN
						PERFORM $call;
						RAISE EXCEPTION USING ERRCODE = 'ZZ000';
					EXCEPTION WHEN SQLSTATE '$state' THEN NULL;
					END;
				END LOOP;
			END \$\$}, '', "$n $what, caught");
		# each ends a transaction; psql is fed by small portions
		my $seen = 0;
		foreach my $portion (1 .. $n / 200)
		{
			my $answer = $session->run(join('', map { "SELECT $call;\n" } 1 .. 200));
			$seen += () = $answer->{error} =~ /ERROR:  $state:/g;
		}
		is($seen, $n, "$n $what, not caught");
		return;
	};

	$caught->($times / 10);
	my ($bytes, $rss) = ($session->value($contexts), rss_kb($pid));
	$caught->($times);
	cmp_ok($session->value($contexts) - $bytes, '<=', 64 * 1024, "$times $what: memory contexts do not grow");
	cmp_ok(rss_kb($pid) - $rss, '<=', 1024, "$times $what: the process does not grow by more than 1 MB");
}
is($session->value('SELECT pg_backend_pid()'), $pid, 'the session is the same');
$session->answers(q{SELECT status FROM lease.renew('held', 'ann', 1, '1 hour')}, 'ok', 'and its leases work');
$session->answers(q{SET statement_timeout = '100ms'; SELECT pg_sleep(60)}, '57014', 'interrupts are still heeded');
unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/PANIC:|terminated by signal|server process .* exited/, 'no server process fell');
$session->quit;
$node->stop;

done_testing();
