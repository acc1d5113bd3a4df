# A hot standby looks and changes nothing (25006); promoted, it goes on where the primary was.
# Proves: I9, I10, D2, R2, R3, failure row "Primary/replica failover"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use PostgreSQL::Test::Cluster;
use Test::More;

my $primary = lease_cluster('primary', init => [ allows_streaming => 1 ]);
$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;

$primary->safe_psql('postgres', $_) foreach (
	q{SELECT lease.acquire('held', 'ann', '1 hour', NULL, '"here"')},
	q{SELECT lease.acquire('many', 'ann', '1 hour') FROM generate_series(1, 5)},
	q{SELECT lease.acquire('short', 'ann', '2 s')});
$primary->wait_for_catchup($standby);

my $columns = 'key, state, owner, epoch, expires_at, payload';
row_is($standby, "SELECT $columns FROM lease.leases WHERE key <> 'short' ORDER BY key", value($primary, "SELECT $columns FROM lease.leases WHERE key <> 'short' ORDER BY key"), 'the view shows the same on the standby');
row_is($standby, q{SELECT state, owner, epoch, payload, in_flight FROM lease.inspect('held')}, 'held|ann|1|"here"|f', 'inspect looks on the standby');
row_is($standby, q{SELECT state, epoch FROM lease.inspect('never seen')}, 'free|0', 'at an unknown key, too');
row_is($standby, q{SELECT count(*) FROM lease.claims}, '0', 'lease.claims works on the standby');
row_is($standby, q{SELECT count(*) FROM lease.clock WHERE lease.now() >= lease_time}, '1', 'and its clock');
my $s = session($standby);
foreach my $call (q{acquire('new', 'bob', '1 hour')}, q{acquire('held', 'bob', '1 hour')}, q{acquire('held', 'bob', '1 hour', '1 s')},
	q{renew('held', 'ann', 1, '1 hour')}, q{release('held', 'ann', 1)}, q{release('never seen', 'ann', 1)})
{
	$s->answers("SELECT * FROM lease.$call", '25006', "$call on the standby is 25006");
}
$primary->safe_psql('postgres', 'SELECT pg_sleep(2)');
row_is($standby, q{SELECT state_of('short')}, 'lapsed 1', 'a lapse shows on the standby');
$s->answers('SELECT 1', '1', 'the session goes on');

# Promotion. The same sessions write from then on.
$primary->stop;
$standby->promote;
$s->answers(q{SELECT acquired, epoch FROM lease.acquire('many', 'ann', '1 hour')}, 't|6', 'promoted: epochs go on (D2)');
$s->answers(q{SELECT acquired FROM lease.acquire('held', 'bob', '1 hour')}, 'f', 'promoted: a lease is still held');
$s->answers(q{SELECT status FROM lease.renew('held', 'ann', 1, '1 hour')}, 'ok', 'promoted: by its holder, who renews (R2)');
$s->answers(q{SELECT status FROM lease.renew('short', 'ann', 1, '1 hour')}, 'lapsed', 'promoted: a lapsed one has lapsed (R2)');
$s->answers(q{SELECT acquired, epoch FROM lease.acquire('short', 'bob', '1 hour')}, 't|2', 'promoted: and is taken over');
$s->answers(q{SELECT status FROM lease.release('held', 'ann', 1)}, 'ok', 'promoted: released');
$s->quit;
$standby->stop;

done_testing();
