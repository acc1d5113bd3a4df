# Thirty-two clients write to fenced tables under leases that change hands every few hundred milliseconds, released, lapsed in the
# middle of a transaction, taken over and forced free, and the server falls over once. What was committed, read in the order of the commits, is a
# history that leases allow: no term writes after its successor has begun, and every write saw all that came before.
# Proves: I1, I2, I3 (fencing effectiveness), I4, D1, D2, failure row "Server crash (unclean)",
#   failure row "TTL shorter than operation latency"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;
use Time::HiRes qw(time sleep);

my $clients = 32;
my $keys = 4;
my $node = lease_cluster('history', conf => "track_commit_timestamp = on\nsynchronous_commit = off\nmax_connections = 60\n");

# counter: one row a key, written by every transaction; history: one row a transaction.
$node->safe_psql('postgres', qq{
	CREATE TABLE counter (key text PRIMARY KEY, n bigint NOT NULL, term bigint);
	INSERT INTO counter SELECT 'key ' || i, 0 FROM generate_series(1, $keys) i;
	CREATE TABLE history (key text, term bigint, n bigint, seen_n bigint, seen_term bigint, seen_rows bigint, client int);
	CREATE INDEX ON history (key, n);
	CREATE TRIGGER fence BEFORE INSERT OR UPDATE OR DELETE ON counter FOR EACH ROW EXECUTE FUNCTION lease.fence('key', 'term');
	CREATE TRIGGER fence BEFORE INSERT OR UPDATE OR DELETE ON history FOR EACH ROW EXECUTE FUNCTION lease.fence('key', 'term');
	-- What a client does between BEGIN and COMMIT. It reads first, as the one who holds the key, and writes what it has read:
	-- whoever wrote in between would be lost.
	CREATE FUNCTION work(me int, k text, e bigint, pause float8) RETURNS void LANGUAGE plpgsql AS \$\$
	DECLARE
		seen counter;
		seen_rows bigint;
	BEGIN
		PERFORM lease.guard(k, 'client ' || me, e);
		SELECT * INTO seen FROM counter WHERE key = k;
		SELECT count(*) INTO seen_rows FROM history h WHERE h.key = k;
		PERFORM pg_sleep(pause);
		UPDATE counter SET n = seen.n + 1 WHERE key = k;
		INSERT INTO history VALUES (k, NULL, seen.n + 1, seen.n, seen.term, seen_rows, me);
	END \$\$;
});

# A client's script: it takes a key for 300 ms, works a while, and then renews, releases, goes on without the lease, or hangs.
# Errors are part of the game, so psql goes on after them.
my $dir = PostgreSQL::Test::Utils::tempdir();
sub script
{
	my ($client, $phase) = @_;
	my $file = "$dir/client_$client.$phase.sql";
	my $sql = "\\set epoch 0\nSET statement_timeout = '20 s';\n";
	srand($client * 1000 + $phase);
	foreach my $round (1 .. 2000)
	{
		my $key = 'key ' . (1 + int rand $keys);
		$sql .= "SELECT epoch FROM lease.acquire('$key', 'client $client', '300 ms', '2 s') \\gset\n";
		foreach my $write (1 .. 1 + int rand 5)
		{
			# some outlive their lease, most often one that is fresh
			my $pause = rand() < ($write == 1 ? 0.2 : 0.03) ? 0.4 : rand() * 0.005;
			my $level = rand() < 0.2 ? ' ISOLATION LEVEL REPEATABLE READ' : '';
			$sql .= "BEGIN$level;\nSELECT work($client, '$key', :epoch, $pause);\nCOMMIT;\n";
			$sql .= "SELECT status FROM lease.renew('$key', 'client $client', :epoch, '300 ms');\n" if rand() < 0.5;
		}
		my $end = rand;
		$sql .= "SELECT status FROM lease.release('$key', 'client $client', :epoch);\n" if $end < 0.5;
		$sql .= "SELECT lease.force_release('$key');\n" if $end > 0.95;
	}
	PostgreSQL::Test::Utils::append_to_file($file, $sql);
	return $file;
}

sub start_clients
{
	my ($phase) = @_;
	return map {
		my $err = "$dir/client_$_.$phase.err";
		IPC::Run::start([ $node->installed_command('psql'), '-XAtq', '-d', $node->connstr('postgres'), '-f', script($_, $phase) ],
			'<', '/dev/null', '>', '/dev/null', '2>', $err);
	} 1 .. $clients;
}

sub run_for
{
	my ($phase, $seconds, $crash) = @_;
	my @running = start_clients($phase);
	sleep $seconds;
	if ($crash) { $node->stop('immediate'); }
	else { $_->signal('TERM') foreach @running; }
	eval { IPC::Run::finish($_) } foreach @running;
	return;
}

run_for(1, 8, 1);
$node->start;
my $before = value($node, 'SELECT count(*) FROM history');
run_for(2, 8, 0);
$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'client backend'");

my ($rows, $terms, $writers) = split /\|/, value($node, 'SELECT count(*), count(DISTINCT (key, term)), count(DISTINCT client) FROM history');
note("$rows guarded writes ($before before the crash) in $terms terms by $writers clients");
cmp_ok($rows, '>', 200, 'many guarded writes');
cmp_ok($terms, '>', 40, 'in many terms');
cmp_ok($writers, '>', $clients / 2, 'by many clients');

my %refused;
foreach my $file (glob "$dir/*.err")
{
	foreach (split /\n/, PostgreSQL::Test::Utils::slurp_file($file))
	{
		$refused{ /guarded commit/ ? 'at the commit' : /is not held by|has lapsed|not the current one/ ? 'at the call' : 'otherwise' }++ if /ERROR:/;
	}
}
note(join ', ', map { "$refused{$_} refused $_" } sort keys %refused);
cmp_ok($refused{'at the commit'} // 0, '>', 0, 'commits of former holders were refused');
cmp_ok($refused{'at the call'} // 0, '>', 5, 'and calls');

$node->safe_psql('postgres', q{
	CREATE VIEW in_order AS
		SELECT *, lag(term) OVER w AS term_before, lag(n) OVER w AS n_before, row_number() OVER w AS nth
		FROM (SELECT *, pg_xact_commit_timestamp(xmin) AS committed FROM history) h
		WINDOW w AS (PARTITION BY key ORDER BY committed, n);
});
row_is($node, 'SELECT count(*) FROM in_order WHERE committed IS NULL', '0', 'every commit has its time');
row_is($node, 'SELECT count(*) FROM in_order WHERE term < term_before', '0', 'in the order of the commits no epoch goes back (I2, I3)');
row_is($node, q{
	SELECT count(*) FROM (SELECT key, term, max(committed) AS last FROM in_order GROUP BY 1, 2) a
	JOIN (SELECT key, term, min(committed) AS first FROM in_order GROUP BY 1, 2) b USING (key) WHERE b.term > a.term AND b.first <= a.last},
	'0', 'no write of a term is committed after the first of a later one');
row_is($node, 'SELECT count(*) FROM in_order WHERE n <> nth OR seen_n <> nth - 1', '0', 'each write saw the one before it: none is lost, none is doubled');
row_is($node, 'SELECT count(*) FROM in_order WHERE seen_rows <> nth - 1', '0', 'and all rows that came before');
row_is($node, 'SELECT count(*) FROM in_order WHERE seen_term IS DISTINCT FROM term_before', '0', 'under the epoch that is written beside it');
row_is($node, 'SELECT count(*) FROM (SELECT key, term FROM history GROUP BY 1, 2 HAVING count(DISTINCT client) > 1) t', '0', 'no epoch was used by two clients (I1)');
row_is($node, 'SELECT count(*) FROM counter c JOIN (SELECT key, max(n) AS n, max(term) AS term FROM history GROUP BY 1) h USING (key, n, term)', $keys,
	'the fenced table agrees with the history');
row_is($node, 'SELECT count(*) FROM history h JOIN lease.leases l USING (key) WHERE h.term > l.epoch', '0', 'no epoch is above its key\'s counter (D2)');
row_is($node, 'SELECT count(*) FROM lease.claims', '0', 'no claim is left');
row_is($node, "SELECT count(status) FROM lease.leases l, lease.force_release(l.key) f(owner, status)", $keys, 'no guard is left');
$node->stop;

done_testing();
