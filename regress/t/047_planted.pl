# A table that is called lease.entry and looks like it, but is not part of the extension, is nobody's business: no worker looks into
# it, no session takes it for the extension's.
# Proves: I10 (nothing of it is changed), R3

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

my $node = lease_cluster('planted');
value($node, 'CREATE ROLE stranger LOGIN');
# in the order in which the launcher looks into them
foreach my $db (qw(planted later))
{
	value($node, "CREATE DATABASE $db TEMPLATE template0");
}
create_lease($node, 'later');
value($node, 'GRANT CREATE ON DATABASE planted TO stranger');

$node->safe_psql('planted', q{
	SET SESSION AUTHORIZATION stranger;
	CREATE SCHEMA lease;
	CREATE TABLE lease.entry ();
	ALTER TABLE lease.entry
		ADD COLUMN epoch bigint NOT NULL, ADD COLUMN ttl bigint NOT NULL, ADD COLUMN granted_at timestamptz NOT NULL,
		ADD COLUMN renewed_at timestamptz NOT NULL, ADD COLUMN expires_at timestamptz NOT NULL, ADD COLUMN clock_base timestamptz NOT NULL,
		ADD COLUMN state "char" NOT NULL, ADD COLUMN key text COLLATE "C" NOT NULL, ADD COLUMN owner text COLLATE "C",
		ADD COLUMN granted_to text COLLATE "C", ADD COLUMN payload jsonb,
		ALTER COLUMN key SET STORAGE PLAIN, ALTER COLUMN owner SET STORAGE PLAIN, ALTER COLUMN granted_to SET STORAGE PLAIN,
		ALTER COLUMN payload SET STORAGE PLAIN, ADD PRIMARY KEY (key);
	CREATE TABLE lease.epoch_floor (floor bigint NOT NULL);
	INSERT INTO lease.entry (epoch, ttl, granted_at, renewed_at, expires_at, clock_base, state, key, owner)
		SELECT 1, 1000000, t, t, t + interval '1 s', t, 'h', 'k', 'ann' FROM (SELECT now() - interval '1 hour') AS past (t);
});

sub left_alone
{
	my ($when) = @_;
	row_is($node, q{SELECT count(*) FROM lease.sweepers WHERE database = 'planted'}, '0', "$when: no sweeper stays");
	is(value($node, 'SELECT state FROM lease.entry', 'planted'), 'h', "$when: nothing is written");
	return;
}

# A launcher that looks into all databases has come past it once the next one's sweeper runs.
$node->restart;
$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM lease.sweepers WHERE database = 'later' AND status = 'running'})
  or die 'no sweeper';
left_alone('after a start');

# Commands that have the launcher look at once.
$node->safe_psql('planted', 'SET SESSION AUTHORIZATION stranger; CREATE EXTENSION IF NOT EXISTS plpgsql CASCADE');
$node->poll_query_until('postgres', q{SELECT count(*) = 0 OR bool_or(status = 'running') FROM lease.sweepers WHERE database = 'planted'})
  or die 'the sweeper neither runs nor leaves';
left_alone('CREATE EXTENSION of another one');

# --- The extension's own table, once it is not the extension's any more: sessions say so, the sweeper leaves.
value($node, q{SELECT lease.acquire('k', 'ann', '1 hour')});
value($node, 'ALTER EXTENSION pg_lease DROP TABLE lease.entry');
my $session = session($node);
foreach my $call (q{lease.acquire('k', 'bob', '1 hour')}, q{lease.renew('k', 'ann', 1, '1 hour')}, q{lease.inspect('k')}, 'lease.leases')
{
	my $answer = $session->run("SELECT * FROM $call");
	is($answer->{state}, '55000', "not the extension's: $call: 55000");
	like($answer->{message}, qr/lease\.entry.*extension/, "not the extension's: $call: says what is wrong");
}
my $pid = value($node, q{SELECT pid FROM lease.sweepers WHERE database = 'postgres'});
value($node, "SELECT pg_terminate_backend($pid)") if $pid;
# (calls of this session have the launcher look again, so from another database)
ok($node->poll_query_until('later', q{SELECT count(*) = 0 FROM lease.sweepers WHERE database = 'postgres'}), 'the sweeper leaves');
value($node, 'ALTER EXTENSION pg_lease ADD TABLE lease.entry');
$session->answers(q{SELECT status FROM lease.renew('k', 'ann', 1, '1 hour')}, 'ok', 'given back: all is as it was');
$session->quit;
$node->stop;

done_testing();
