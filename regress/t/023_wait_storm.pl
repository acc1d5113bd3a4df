# A thousand waits are cut short at random, by cancel, termination and clients that vanish, while others are being served. Afterwards nobody
# waits, no claim is left, and every lease that was granted was told to the client it was granted to.
# Proves: I1, I10, D4 (a wait that is lost leaves no trace), failure row "Client crashes mid-operation", failure row "Holder session terminates (clean disconnect)"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use PostgreSQL::Test::Utils ();
use Test::More;
use Time::HiRes 'usleep';

my $cuts = $ENV{PG_LEASE_ROUNDS} // 1000;
my $clients = 16;
my $seed = $ENV{PG_LEASE_SEED} // time ^ $$;
srand $seed;
note("PG_LEASE_SEED=$seed");

# The server looks after its clients while they wait.
my $node = lease_cluster('wait_storm', conf => "client_connection_check_interval = '5ms'\n");
my $folder = PostgreSQL::Test::Utils::tempdir();

# A client asks for one lease after the other, each under a name of its own, and notes what it is told. Its application name is its
# process id; if it is ended, another one takes its place.
PostgreSQL::Test::Utils::append_to_file("$folder/client", <<'CLIENT');
while [ ! -e "$1/stop" ]; do
	sh -c 'PGAPPNAME=$$ exec psql -XAtq -d "$0" -f "$1"' "$3" "$1/script.$2" >>"$1/told.$2" 2>/dev/null
done
CLIENT
my @keys = map { (qw(kept one two two))[ $_ % 4 ] } 0 .. $clients;
foreach my $client (1 .. $clients)
{
	my $asked = "'$keys[$client]', 'client ' || nextval('names'), '1 hour', '1 min'";
	my $call = $client % 2 ? "CALL lease.wait_acquire($asked)" : "SELECT * FROM lease.acquire($asked)";
	PostgreSQL::Test::Utils::append_to_file("$folder/script.$client", "$call;\n" x 500);
}
$node->safe_psql('postgres', q{
	CREATE TABLE granted (key text, owner text, epoch bigint);
	CREATE TABLE told (key text, epoch bigint);
	CREATE SEQUENCE names;
	SELECT lease.acquire('kept', 'keeper', '1 hour');
	-- gives back what a client holds
	CREATE PROCEDURE give_back() LANGUAGE plpgsql AS $$
	DECLARE
		held record;
	BEGIN
		FOR held IN SELECT * FROM lease.leases WHERE state = 'held' AND owner <> 'keeper' LOOP
			INSERT INTO granted VALUES (held.key, held.owner, held.epoch);
			IF (SELECT status FROM lease.release(held.key, held.owner, held.epoch)) <> 'ok' THEN RAISE EXCEPTION 'not released: %', held; END IF;
			COMMIT;
		END LOOP;
	END $$;
});

my @clients = map { my ($in, $out) = ('', ''); IPC::Run::start([ 'sh', "$folder/client", $folder, $_, $node->connstr('postgres') ], '<', \$in, '>', \$out, '2>&1') } 1 .. $clients;
my ($driver, $releaser) = map { session($node) } 1 .. 2;
my %cut = (cancel => 0, terminate => 0, vanish => 0);
my %vanished;
my $victim = q{FROM lease.waiters w JOIN pg_stat_activity a USING (pid)};

# Cancels, terminations and releases come from two sessions, so that they meet; whom they meet is random.
for (my $done = 0; $done < $cuts;)
{
	$releaser->answer if $releaser->{mark} && !$releaser->busy;
	$releaser->send('CALL give_back()') if !$releaser->{mark} && rand() < 0.3;
	my $how = (qw(cancel terminate vanish))[ rand 3 ];
	my $act = $how eq 'vanish' ? "application_name, owner, 'f'" : "pg_${how}_backend(pid), '', ''";
	my $hit = $driver->value("SELECT $act FROM (SELECT * $victim ORDER BY random() LIMIT 1) v");
	if ($hit)
	{
		my ($client, $owner) = split /\|/, $hit;
		kill 'KILL', $client if $how eq 'vanish';
		$vanished{$owner} = 1 if $how eq 'vanish';
		$cut{$how}++;
		$done++;
	}
	usleep(rand 3000);
}
note(join ', ', map { "$_: $cut{$_}" } sort keys %cut);
PostgreSQL::Test::Utils::append_to_file("$folder/stop", '');
$releaser->answer if $releaser->{mark};
$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM (SELECT pg_terminate_backend(pid) $victim) c") or die 'waiters stay';
foreach my $client (@clients)
{
	# the last ones may have come to wait meanwhile
	while ($client->pumpable) { $driver->value("SELECT count(pg_terminate_backend(pid)) $victim"); $client->pump_nb; usleep(10_000); }
	$client->finish;
}
$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE query ~ 'acquire' AND pid <> pg_backend_pid()}) or die 'backends stay';

row_is($node, 'SELECT count(*) FROM lease.waiters', '0', 'nobody waits');
row_is($node, 'SELECT count(*) FROM lease.claims', '0', 'no claim is left');
row_is($node, q{SELECT state_of('kept')}, 'held keeper 1', 'a key that was held all the time is still held by its holder (I1)');
$driver->value('CALL give_back()');
# t|epoch|expires_at
my @told = map { my $key = $keys[$_]; map { "$key|" . (split /\|/)[1] . "\n" } grep { /^t\|/ } split /\n/, PostgreSQL::Test::Utils::slurp_file("$folder/told.$_") } 1 .. $clients;
$driver->value("COPY told FROM STDIN (DELIMITER '|');\n" . join('', @told) . '\\.');
my $granted = value($node, 'SELECT count(*) FROM granted');
cmp_ok($granted, '>', $cuts / 20, "many were served meanwhile ($granted)");
row_is($node, 'SELECT count(*) FROM (SELECT key, epoch FROM granted GROUP BY 1, 2 HAVING count(*) > 1) g', '0', 'each under an epoch of its own (I2)');
row_is($node, 'SELECT count(*) FROM (SELECT key, epoch FROM told EXCEPT SELECT key, epoch FROM granted) t', '0', 'whoever was told so had the lease');
# A client that vanishes may be gone when the server tells it.
my $untold = join(',', "''", map { "'$_'" } keys %vanished);
row_is($node, "SELECT count(*) FROM granted WHERE (key, epoch) NOT IN (SELECT key, epoch FROM told) AND owner NOT IN ($untold)", '0', 'nobody had a lease that its client was not told of');
row_is($node, "SELECT count(*) FROM granted WHERE key = 'kept'", '0', 'and nobody the one that was held');
$_->quit foreach $driver, $releaser;
$node->stop;

done_testing();
