# Sixteen sessions do what they like to three keys, with ttls about as long as a transaction; what each was told and committed is
# put together afterwards: no two holds of a key overlap, and epochs tell their order.
# Proves: I1, I2, I3, I4, I6, I8, I11, failure row "TTL shorter than operation latency", failure row "Operation transaction aborts"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

my $sessions = 16;
my $rounds = 400;
my $node = lease_cluster('history');
my $seed = $ENV{PG_LEASE_SEED} // int rand 1_000_000;
note("PG_LEASE_SEED=$seed");

$node->safe_psql('postgres', q{
	-- what was told: at is the instant that the call was judged at (grants and renewals), or the last instant before it (releases)
	CREATE TABLE told (key text, what text, owner text, epoch bigint, at timestamptz, expires_at timestamptz);

	CREATE PROCEDURE play(me text, rounds int, seed float8) LANGUAGE plpgsql AS $$
	DECLARE
		key text;
		mine jsonb := '{}';  -- epochs this player was last given, by key, committed or not
		granted record;
		renewed record;
		ttl interval;
		before timestamptz;
		dice float8;
	BEGIN
		PERFORM setseed(seed);
		COMMIT;
		FOR i IN 1..rounds LOOP
			-- one to three operations in a transaction
			FOR j IN 1..1 + floor(random() * 3) LOOP
				key := 'key ' || floor(random() * 3);
				ttl := make_interval(secs => 0.001 + random() * 0.05);
				dice := random();
				IF dice < 0.5 THEN
					SELECT * INTO granted FROM lease.acquire(key, me, ttl);
					IF granted.acquired THEN
						INSERT INTO told VALUES (key, 'grant', me, granted.epoch, granted.expires_at - ttl, granted.expires_at);
						mine := jsonb_set(mine, ARRAY[key], to_jsonb(granted.epoch));
					END IF;
				ELSIF mine ? key AND dice < 0.8 THEN
					SELECT * INTO renewed FROM lease.renew(key, me, (mine->>key)::bigint, ttl);
					IF renewed.status = 'ok' THEN
						INSERT INTO told VALUES (key, 'renewal', me, (mine->>key)::bigint, renewed.expires_at - ttl, renewed.expires_at);
					END IF;
				ELSIF mine ? key THEN
					before := lease.now();
					SELECT * INTO renewed FROM lease.release(key, me, (mine->>key)::bigint);
					IF renewed.status = 'ok' THEN
						INSERT INTO told VALUES (key, 'release', me, (mine->>key)::bigint, before, NULL);
						mine := mine - key;
					END IF;
				END IF;
				IF random() < 0.05 THEN PERFORM pg_sleep(random() * 0.01); END IF;
			END LOOP;
			IF random() < 0.2 THEN ROLLBACK; ELSE COMMIT; END IF;
		END LOOP;
	END $$;
});

# A player whose COMMIT comes too late (LE001), or whose own change was broken, is out of that call, and goes on with the next.
my @players = map { session($node) } 1 .. $sessions;
my %left = map { $_ => $rounds } 0 .. $#players;
my $late = 0;
my @other;
$node->safe_psql('postgres', 'SELECT setseed(0)');
my $portion = 20;
$_->send("CALL play('player $_->{pid}', $portion, " . ($seed % 1000) / 1000 . ')') foreach @players;
while (%left)
{
	foreach my $i (sort { $a <=> $b } keys %left)
	{
		my $answer = $players[$i]->answer;

		if ($answer->{state} eq 'LE001') { $late++; }
		elsif ($answer->{state} ne '00000') { push @other, "$answer->{state}: $answer->{message}"; }
		$left{$i} -= $portion;
		if ($left{$i} <= 0) { delete $left{$i}; next; }
		$players[$i]->send("CALL play('player $players[$i]{pid}', $portion, " . (($seed + 7919 * $i + $left{$i}) % 1000) / 1000 . ')');
	}
}
is("@other", '', 'no error but LE001');
note("calls ended by LE001: $late of ", $sessions * $rounds / $portion);

# A hold: its grant, its renewals; it ends with its release, with the next grant to the same owner, or with the last expiry told.
$node->safe_psql('postgres', q{
	CREATE VIEW holds AS
	SELECT g.key, g.epoch, g.owner, g.at AS from_at,
		(SELECT max(r.at) FROM told r WHERE r.key = g.key AND r.epoch = g.epoch AND r.what = 'renewal') AS last_renewal,
		(SELECT r.expires_at FROM told r WHERE r.key = g.key AND r.epoch = g.epoch AND r.what <> 'release' ORDER BY r.at DESC LIMIT 1) AS expires_at,
		(SELECT r.at FROM told r WHERE r.key = g.key AND r.epoch = g.epoch AND r.what = 'release') AS released,
		lead(g.at) OVER w AS next_from, lead(g.owner) OVER w AS next_owner, lead(g.epoch) OVER w AS next_epoch
	FROM told g WHERE g.what = 'grant'
	WINDOW w AS (PARTITION BY g.key ORDER BY g.epoch)});
note(value($node, q{SELECT key, count(*), count(released), count(last_renewal), count(*) FILTER (WHERE released IS NULL AND next_owner <> owner) FROM holds GROUP BY 1 ORDER BY 1}));
row_is($node, q{SELECT count(*) >= 100, count(released) >= 10, count(last_renewal) >= 10,
		count(*) FILTER (WHERE released IS NULL AND next_owner <> owner) >= 10 FROM holds}, 't|t|t|t', 'there is something to check: holds, releases, renewals, takeovers');
row_is($node, q{SELECT count(*) FROM (SELECT FROM told WHERE what = 'grant' GROUP BY key, epoch HAVING count(*) > 1) d}, '0', 'an epoch is given once (I2)');
row_is($node, q{SELECT count(*) FROM told r WHERE what <> 'grant' AND NOT EXISTS (SELECT FROM told g WHERE g.what = 'grant' AND (g.key, g.epoch, g.owner) = (r.key, r.epoch, r.owner))},
	'0', 'what was renewed or released had been granted to the same owner (I8)');
row_is($node, 'SELECT count(*) FROM holds WHERE next_from < from_at', '0', 'a greater epoch is a later grant (I2)');
row_is($node, 'SELECT count(*) FROM holds WHERE next_owner <> owner AND released IS NULL AND next_from < expires_at', '0', 'nobody else is granted a key before it expired or was released (I1)');
row_is($node, 'SELECT count(*) FROM holds WHERE released IS NOT NULL AND next_from < released', '0', 'nor before it was released');
row_is($node, 'SELECT count(*) FROM holds WHERE released IS NOT NULL AND next_epoch < epoch + 2', '0', 'a release raises the epoch');
row_is($node, 'SELECT count(*) FROM holds WHERE last_renewal >= next_from', '0', 'no renewal of a term after the next one began (I3)');
row_is($node, q{
	SELECT count(*) FROM told r WHERE r.what = 'renewal' AND r.at >=
		(SELECT max(p.expires_at) FROM told p WHERE p.key = r.key AND p.epoch = r.epoch AND p.at < r.at AND p.what <> 'release')}, '0', 'no renewal of a lapsed lease (I4)');
row_is($node, q{SELECT count(*) FROM lease.leases l WHERE l.epoch < (SELECT max(epoch) FROM told t WHERE t.key = l.key)}, '0', 'no key shows less than was told');
row_is($node, 'SELECT open_claims()', '0', 'no claim is left');
$_->quit foreach @players;
$node->stop;

done_testing();
