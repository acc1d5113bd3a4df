# What ends a hold, at random offsets around the moment at which somebody begins to wait: whoever waits is woken by it or by its own
# timer, never by the safety tick.
# Proves: I1, I5, A2 (for who waits already), failure row "Operation transaction aborts", failure row "Holder session terminates (clean disconnect)"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

my $rounds = $ENV{PG_LEASE_ROUNDS} // 1000;
my $pairs = 2;
my $victims = 50;
my $node = lease_cluster('wait_offsets', conf => "max_connections = 100\n");

# A round: who holds opens gate (pair * 10 + 1, round), which the one who waits comes through; it keeps gate (pair * 10 + 2, round) until
# it has had its turn. Gates are advisory locks.
$node->safe_psql('postgres', q{
	CREATE TABLE ended (variant text, pair int, round int, at timestamptz);
	CREATE TABLE taken (variant text, pair int, round int, began timestamptz, at timestamptz);

	CREATE PROCEDURE delay(most_ms float) LANGUAGE plpgsql AS $$
	DECLARE
		until timestamptz := clock_timestamp() + random() * most_ms * interval '1 ms';
	BEGIN
		-- pg_sleep knows whole milliseconds only
		PERFORM pg_sleep(greatest(0, floor(extract(epoch FROM until - clock_timestamp()) * 1000) - 1) / 1000);
		WHILE clock_timestamp() < until LOOP END LOOP;
	END $$;

	CREATE PROCEDURE open_gate(pair int, round int) LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_advisory_lock(pair * 10 + 1, round + 1);
		PERFORM pg_advisory_unlock(pair * 10 + 1, round);
	END $$;

	CREATE PROCEDURE hold(variant text, pair int, rounds int) LANGUAGE plpgsql AS $$
	DECLARE
		key text := 'key ' || pair;
		given record;
		ended timestamptz;
	BEGIN
		FOR round IN 1..rounds LOOP
			IF variant = 'release' THEN
				SELECT * INTO given FROM lease.acquire(key, 'holder', '1 hour');
				COMMIT;
				CALL open_gate(pair, round);
				CALL delay(5);
				ended := clock_timestamp();
				PERFORM lease.release(key, 'holder', given.epoch);
				COMMIT;
			ELSIF variant = 'abort' THEN
				PERFORM lease.acquire(key, 'holder', '1 hour');
				CALL open_gate(pair, round);
				CALL delay(5);
				ended := clock_timestamp();
				ROLLBACK;
			ELSIF variant = 'savepoint' THEN
				BEGIN
					PERFORM lease.acquire(key, 'holder', '1 hour');
					CALL open_gate(pair, round);
					CALL delay(5);
					ended := clock_timestamp();
					RAISE SQLSTATE 'UNDO1';
				EXCEPTION WHEN SQLSTATE 'UNDO1' THEN
					-- the transaction goes on
				END;
			ELSIF variant = 'deadline' THEN
				SELECT * INTO given FROM lease.acquire(key, 'holder', interval '3 ms' + random() * interval '5 ms');
				ended := given.expires_at;
				CALL open_gate(pair, round);
			END IF;
			PERFORM pg_advisory_lock(pair * 10 + 2, round);
			PERFORM pg_advisory_unlock(pair * 10 + 2, round);
			ROLLBACK;
			INSERT INTO ended VALUES (variant, pair, round, ended);
			COMMIT;
		END LOOP;
		PERFORM pg_advisory_unlock(pair * 10 + 1, rounds + 1);
	END $$;

	CREATE PROCEDURE take(variant text, pair int, rounds int) LANGUAGE plpgsql AS $$
	DECLARE
		key text := 'key ' || pair;
		given record;
		began timestamptz;
		taken timestamptz;
	BEGIN
		PERFORM pg_advisory_lock_shared(pair * 10 + 2, 1);
		FOR round IN 1..rounds LOOP
			PERFORM pg_advisory_lock_shared(pair * 10 + 1, round);
			PERFORM pg_advisory_unlock_shared(pair * 10 + 1, round);
			COMMIT;
			CALL delay(5);
			began := clock_timestamp();
			SELECT * INTO given FROM lease.acquire(key, 'taker', '1 hour', '30 s');
			taken := clock_timestamp();
			COMMIT;
			PERFORM lease.release(key, 'taker', given.epoch);
			INSERT INTO taken VALUES (variant, pair, round, began, taken);
			COMMIT;
			PERFORM pg_advisory_lock_shared(pair * 10 + 2, round + 1);
			PERFORM pg_advisory_unlock_shared(pair * 10 + 2, round);
		END LOOP;
		PERFORM pg_advisory_unlock_shared(pair * 10 + 2, rounds + 1);
	END $$;

	-- Holds under one name and waits under another; the hold has to be committed before it is over.
	CREATE PROCEDURE lapse(pair int, rounds int) LANGUAGE plpgsql AS $$
	DECLARE
		key text := 'lapsing ' || pair;
		given record;
		began timestamptz;
		taken timestamptz;
	BEGIN
		FOR this IN 1 + (SELECT count(*) FROM taken t WHERE t.variant = 'lapse' AND t.pair = lapse.pair)..rounds LOOP
			SELECT * INTO given FROM lease.acquire(key, 'holder', '20 ms');
			COMMIT;
			INSERT INTO ended VALUES ('lapse', pair, this, given.expires_at);
			PERFORM pg_sleep(0.015);
			CALL delay(7);
			began := clock_timestamp();
			SELECT * INTO given FROM lease.acquire(key, 'taker', '1 hour', '30 s');
			taken := clock_timestamp();
			PERFORM lease.release(key, 'taker', given.epoch);
			INSERT INTO taken VALUES ('lapse', pair, this, began, taken);
			COMMIT;
		END LOOP;
	END $$;

	-- One of a batch of victims waits at the head, the taker behind it; the hold ends and the victim is ended.
	CREATE PROCEDURE kill_heads(first int, last int) LANGUAGE plpgsql AS $$
	DECLARE
		given record;
		ended timestamptz;
		victim int;
	BEGIN
		FOR round IN first..last LOOP
			SELECT * INTO given FROM lease.acquire('key 0', 'holder', '1 hour');
			COMMIT;
			PERFORM pg_advisory_unlock(3, round);
			LOOP
				SELECT w.pid INTO victim FROM lease.waiters w WHERE w.key = 'key 0';
				EXIT WHEN FOUND;
			END LOOP;
			CALL open_gate(0, round);
			CALL delay(5);
			IF random() < 0.5 THEN
				PERFORM pg_terminate_backend(victim);
				CALL delay(0.3);
			END IF;
			ended := clock_timestamp();
			PERFORM lease.release('key 0', 'holder', given.epoch);
			COMMIT;
			CALL delay(0.3);
			PERFORM pg_terminate_backend(victim);
			PERFORM pg_advisory_lock(2, round);
			PERFORM pg_advisory_unlock(2, round);
			INSERT INTO ended VALUES ('killed head', 0, round, ended);
			COMMIT;
		END LOOP;
	END $$;
});

# Everybody was served, without the help of a safety tick.
sub served
{
	my ($variant, $ticks) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	row_is($node, "SELECT count(*) FROM taken t JOIN ended e USING (variant, pair, round) WHERE variant = '$variant'", $rounds, "$variant: served each time");
	is(counters($node)->{safety_ticks_that_helped}, $ticks, "$variant: the safety tick never helped");
	row_is($node, "SELECT count(*) > $rounds / 10 FROM taken t JOIN ended e USING (variant, pair, round) WHERE variant = '$variant' AND t.began < e.at",
		't', "$variant: many of them had to wait");
	note("$variant: median, 99th percentile, maximum in ms: ", value($node, qq{
		SELECT (percentile_cont('{0.5,0.99,1}'::float[]) WITHIN GROUP (ORDER BY ms))::numeric(9, 2)[]
		FROM (SELECT 1000 * extract(epoch FROM t.at - greatest(t.began, e.at)) AS ms FROM taken t JOIN ended e USING (variant, pair, round)
			WHERE variant = '$variant') l}));
	row_is($node, 'SELECT (SELECT count(*) FROM lease.claims), (SELECT count(*) FROM lease.waiters)', '0|0', "$variant: nothing is left behind");
	return;
}

my $ticks = counters($node)->{safety_ticks_that_helped};
my $each = $rounds / $pairs;
foreach my $variant (qw(release abort savepoint deadline))
{
	my @holders = map { session($node) } 1 .. $pairs;
	my @takers = map { session($node) } 1 .. $pairs;

	$holders[ $_ - 1 ]->value("SELECT pg_advisory_lock($_ * 10 + 1, 1)") foreach 1 .. $pairs;
	$takers[ $_ - 1 ]->send("CALL take('$variant', $_, $each)") foreach 1 .. $pairs;
	$node->poll_query_until('postgres', "SELECT count(*) = $pairs FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") or die;
	$holders[ $_ - 1 ]->send("CALL hold('$variant', $_, $each)") foreach 1 .. $pairs;
	$_->answers(undef, '', "$variant: no error") foreach @takers, @holders;
	served($variant, $ticks);
	$_->quit foreach @holders, @takers;
}

# Lapses. A COMMIT that took longer than the lease is an error of the test, not of what it tests: go on where it stopped.
my @lapsing = map { session($node) } 1 .. 10;
my $again = 0;
foreach my $i (0 .. $#lapsing) { $lapsing[$i]->send(sprintf 'CALL lapse(%d, %d)', $i, $rounds / @lapsing); }
foreach my $i (0 .. $#lapsing)
{
	my $answer;
	while (($answer = $lapsing[$i]->answer)->{state} eq 'LE001' && $again++ < 100) { $lapsing[$i]->send(sprintf 'CALL lapse(%d, %d)', $i, $rounds / @lapsing); }
	is($answer->{state}, '00000', 'lapse: no error');
}
served('lapse', $ticks);
$_->quit foreach @lapsing;

# Killed heads.
my $taker = session($node);
my $killer = session($node, setup => 'SET client_min_messages = error');
my $script = PostgreSQL::Test::Utils::tempdir() . '/victim.sql';
PostgreSQL::Test::Utils::append_to_file($script, q{
SELECT pg_advisory_lock_shared(3, :first + :client_id);
SELECT epoch AS epoch FROM lease.acquire('key 0', 'victim', '20 ms', '30 s') \gset
SELECT lease.release('key 0', 'victim', :epoch);
});
$killer->value('SELECT pg_advisory_lock(1, 1)');
$taker->send("CALL take('killed head', 0, $rounds)");
for (my $first = 1; $first <= $rounds; $first += $victims)
{
	my $last = $first + $victims - 1;
	my @pgbench = ($node->installed_command('pgbench'), '-n', '-c', $victims, '-t', 1, '-D', "first=$first", '-f', $script, $node->connstr('postgres'));
	my ($out, $in) = ('', '');

	$killer->value("SELECT count(pg_advisory_lock(3, i)) FROM generate_series($first, $last) i");
	my $run = IPC::Run::start(\@pgbench, '<', \$in, '>', \$out, '2>&1');
	$node->poll_query_until('postgres', "SELECT count(*) = $victims FROM pg_locks WHERE locktype = 'advisory' AND classid = 3 AND NOT granted") or die;
	my $answer = $killer->run("CALL kill_heads($first, $last)");
	is($answer->{state}, '00000', 'killed head: no error') or BAIL_OUT($answer->{error});
	$run->finish;
}
$killer->value("SELECT pg_advisory_unlock(1, $rounds + 1)");
$taker->answers(undef, '', 'killed head: the one behind it met no error');
served('killed head', $ticks);
$_->quit foreach $killer, $taker;
note(join ', ', map { "$_: " . counters($node)->{$_} } qw(waits wake_ups hand_offs passed_over safety_ticks safety_ticks_that_helped));
$node->stop;

done_testing();
