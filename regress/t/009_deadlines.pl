# Deadlines to the microsecond and what a late COMMIT says: LE001 with the key's name, whatever was left open.
# (Who gets the key meanwhile: specs/open-acquire, open-renew, open-release.)
# Proves: I1, I4, I5, I7, I10, A1 (0: judged at every call and at the commit), A2 (0 where nobody waits),
#   failure row "Holder hangs / network partitions (session alive)", failure row "TTL shorter than operation latency"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

# no sweeper: a swept row has changed for whoever has a snapshot from before
my $node = lease_cluster('deadlines', conf => 'max_worker_processes = 1');
my $a = session($node);
my $b = session($node);

# As soon as lease.now() has passed the deadline, and not before: asked without a pause around it.
# The answer's instant lies between two readings of the clock, so each answer that contradicts one of them counts.
$node->safe_psql('postgres', q{
	CREATE TABLE asked (key text, before timestamptz, after timestamptz, denied boolean);
	CREATE PROCEDURE ask(key text, deadline timestamptz) LANGUAGE plpgsql AS $$
	DECLARE
		before timestamptz;
		denied boolean := true;
	BEGIN
		WHILE denied LOOP
			before := lease.now();
			SELECT NOT acquired INTO denied FROM lease.acquire(ask.key, 'bob', '1 hour');
			IF NOT denied OR before > deadline - interval '5 ms' THEN
				INSERT INTO asked VALUES (ask.key, before, lease.now(), denied);
			END IF;
			COMMIT;
			IF before > deadline + interval '10 s' THEN RAISE EXCEPTION 'still denied at %', before; END IF;
		END LOOP;
	END $$;
});

my @cases = (
	[ 'a lease' => '', q{SELECT expires_at FROM lease.acquire('%s', 'ann', '300 ms')}, undef ],
	[ 'an acquire left open' => '', q{BEGIN; SELECT expires_at FROM lease.acquire('%s', 'ann', '300 ms')}, 'LE001' ],
	[ 'a renewal left open' => q{SELECT lease.acquire('%s', 'ann', '1 s')}, q{BEGIN; SELECT expires_at FROM lease.renew('%s', 'ann', 1, '1200 ms')}, 'LE001' ],
	[ 'a release left open' => q{SELECT lease.acquire('%s', 'ann', '1 s')}, q{BEGIN; SELECT expires_at FROM lease.inspect('%s'); SELECT FROM lease.release('%s', 'ann', 1)}, 'LE001' ]);
foreach my $case (@cases)
{
	my ($key, $first, $open, $state) = @$case;

	$a->value($first =~ s/%s/$key/gr) if $first;
	my $deadline = $a->value($open =~ s/%s/$key/gr);
	$b->answers("CALL ask('$key', '$deadline')", '', "$key: had in the end (I5)");
	if ($state)
	{
		my $answer = $a->run('COMMIT');
		is($answer->{state}, $state, "$key: the late COMMIT is $state");
		like($answer->{message}, qr/\Q$key\E/, "$key: it names the key");
		$a->answers('ROLLBACK; SELECT 1', '1', "$key: the transaction is over, the session goes on");
	}
	row_is($node, "SELECT count(*) FROM asked WHERE key = '$key' AND denied AND before >= '$deadline'", '0', "$key: never denied once its deadline had passed (A2)");
	row_is($node, "SELECT count(*) FROM asked WHERE key = '$key' AND NOT denied AND after < '$deadline'", '0', "$key: never granted before (I1)");
	row_is($node, "SELECT count(*) FROM asked WHERE key = '$key' AND NOT denied", '1', "$key: granted once");
	row_is($node, "SELECT owner FROM lease.inspect('$key')", 'bob', "$key: the other has it");
}

# The holder itself: ok before its expiry, lapsed from it on, never something else (A1), to the microsecond.
$node->safe_psql('postgres', q{
	CREATE TABLE renewed (before timestamptz, after timestamptz, expires_at timestamptz, status text);
	CREATE PROCEDURE renew_to_the_end(ttl interval) LANGUAGE plpgsql AS $$
	DECLARE
		before timestamptz;
		after timestamptz;
		expiry timestamptz;
		told text := 'ok';
		next timestamptz;
	BEGIN
		SELECT expires_at INTO expiry FROM lease.acquire('own', 'ann', ttl);
		COMMIT;
		FOR i IN 1..20 LOOP
			before := lease.now();
			SELECT status, expires_at INTO told, next FROM lease.renew('own', 'ann', 1, ttl);
			INSERT INTO renewed VALUES (before, lease.now(), expiry, told);
			COMMIT;
			expiry := next;
		END LOOP;
		WHILE told = 'ok' LOOP
			-- asks without renewing: whether it is over shows by the status alone
			before := lease.now();
			SELECT status INTO told FROM lease.renew('own', 'ann', 1, ttl);
			after := lease.now();
			ROLLBACK;
			IF told <> 'ok' OR before > expiry - interval '2 ms' THEN
				INSERT INTO renewed VALUES (before, after, expiry, told);
				COMMIT;
			END IF;
		END LOOP;
	END $$;
});
$a->answers(q{CALL renew_to_the_end('300 ms')}, '', 'renewed, and then not any more');
row_is($node, q{SELECT DISTINCT status FROM renewed ORDER BY 1}, "lapsed\nok", 'the holder was told ok and lapsed');
row_is($node, q{SELECT count(*) FROM renewed WHERE status = 'ok' AND before >= expires_at}, '0', 'never ok after its expiry (A1)');
row_is($node, q{SELECT count(*) FROM renewed WHERE status = 'lapsed' AND after < expires_at}, '0', 'never lapsed before it');

# A transaction's start is no clock: what is granted late in a transaction lasts from then.
$a->value('BEGIN; SELECT now()');
$b->value('SELECT pg_sleep(1)');
$a->value(q{SELECT lease.acquire('late start', 'ann', '2 s'); COMMIT});
row_is($node, q{SELECT acquired FROM lease.acquire('late start', 'bob', '1 hour')}, 'f', 'a ttl counts from the call, not from the transaction');
# ... and a lapse is seen in a transaction that began before it.
$b->value(q{BEGIN; SELECT now()});
$b->value('SELECT pg_sleep(2)');
$b->answers(q{SELECT state_of('late start')}, 'lapsed 1', 'a lapse shows in a transaction begun before it');
$b->answers(q{SELECT acquired FROM lease.acquire('late start', 'bob', '1 hour'); COMMIT}, 't', 'and the key can be had in it');

# statement_timeout and friends find nothing to interrupt: nobody waited.
$a->value(q{BEGIN; SELECT lease.acquire('open', 'ann', '1 hour')});
$b->value(q{SET statement_timeout = '5s'; SET lock_timeout = '1ms'});
$b->answers(q{SELECT acquired FROM lease.acquire('open', 'bob', '1 s')}, 'f', 'denied at once, not by a timeout');
$a->value('ROLLBACK');
$_->quit foreach $a, $b;
$node->stop;

done_testing();
