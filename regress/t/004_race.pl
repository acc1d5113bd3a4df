# Sixteen sessions want one key, a thousand times over: one gets it each time, and epochs only ever rise.
# Proves: I1, I2, I6

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

my $sessions = 16;
my $rounds = 1000;
my $node = lease_cluster('race');

# Each round is a gate: advisory lock (1, round) is held until all have come to it, (2, round) by each until it has tried.
$node->safe_psql('postgres', q{
	CREATE TABLE won (round int, racer int, epoch bigint, expires_at timestamptz, at timestamptz);
	CREATE TABLE tried (racer int, tries int);

	CREATE PROCEDURE race(racer int, rounds int) LANGUAGE plpgsql AS $$
	DECLARE
		given record;
	BEGIN
		PERFORM pg_advisory_lock_shared(2, 1);
		COMMIT;
		FOR round IN 1..rounds LOOP
			PERFORM pg_advisory_lock_shared(1, round);
			PERFORM pg_advisory_unlock_shared(1, round);
			COMMIT;
			SELECT * INTO given FROM lease.acquire('prize', 'racer ' || racer, '1 hour');
			IF given.acquired THEN
				INSERT INTO won VALUES (round, racer, given.epoch, given.expires_at, lease.now());
			END IF;
			COMMIT;
			PERFORM pg_advisory_lock_shared(2, round + 1);
			PERFORM pg_advisory_unlock_shared(2, round);
			COMMIT;
		END LOOP;
		INSERT INTO tried VALUES (racer, rounds);
	END $$;

	-- Opens the gates one after the other, and gives the prize back between them, as the winner would.
	CREATE PROCEDURE start_races(rounds int) LANGUAGE plpgsql AS $$
	DECLARE
		released text;
	BEGIN
		FOR this IN 1..rounds LOOP
			PERFORM pg_advisory_lock(1, this + 1);
			PERFORM pg_advisory_unlock(1, this);
			PERFORM pg_advisory_lock(2, this);
			COMMIT;
			SELECT r.status INTO released FROM won w, LATERAL lease.release('prize', 'racer ' || w.racer, w.epoch) r WHERE w.round = this;
			IF released IS DISTINCT FROM 'ok' THEN RAISE EXCEPTION 'round %: released: %', this, released; END IF;
			COMMIT;
			PERFORM pg_advisory_unlock(2, this);
		END LOOP;
		PERFORM pg_advisory_unlock(1, rounds + 1);
	END $$;
});

my $starter = session($node);
$starter->value('SELECT pg_advisory_lock(1, 1)');
my @racers = map { session($node) } 1 .. $sessions;
# (the unlocking is for a racer that fails, so that the others go on)
$racers[$_]->send("CALL race($_, $rounds); DO 'BEGIN PERFORM pg_advisory_unlock_all(); END'") foreach 0 .. $#racers;
$node->poll_query_until('postgres', "SELECT count(*) = $sessions FROM pg_locks WHERE locktype = 'advisory' AND classid = 1 AND objid = 1 AND NOT granted")
  or die 'the racers do not come to the gate';
$starter->answers("CALL start_races($rounds)", '', 'each round has a winner, who releases');
$_->answers(undef, '', 'a racer tried every time without an error') foreach @racers;

row_is($node, 'SELECT count(*), sum(tries) FROM tried', "$sessions|" . $sessions * $rounds, 'everybody tried in every round');
row_is($node, 'SELECT count(*), count(DISTINCT round), min(round), max(round) FROM won', "$rounds|$rounds|1|$rounds", 'exactly one winner in each round (I1)');
row_is($node, 'SELECT count(*) FROM (SELECT epoch <= lag(epoch) OVER (ORDER BY round) AS back FROM won) w WHERE back', '0', 'epochs strictly increase (I2)');
row_is($node, 'SELECT count(*) FROM won WHERE epoch <> 2 * round - 1', '0', 'by one for each grant and release');
row_is($node, "SELECT state_of('prize')", 'free ' . 2 * $rounds, 'the key is free at the end');
note('winners: ', value($node, "SELECT string_agg(racer || ': ' || n, ', ' ORDER BY n DESC) FROM (SELECT racer, count(*) AS n FROM won GROUP BY 1) w"));
$_->quit foreach $starter, @racers;
$node->stop;

done_testing();
