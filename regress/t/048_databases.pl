# More databases than have room in shared memory: leases work there like anywhere, and the log and lease.stats say what does not.
# Proves: I11, failure row "Resource exhaustion"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeasePoints;
use LeaseTest;
use Test::More;

# no launcher, which would find that the databases that fill the room are not there
my $node = points_cluster('databases', conf => 'max_worker_processes = 1');
value($node, q{CREATE FUNCTION fill_databases(count integer) RETURNS void LANGUAGE c AS 'pg_lease', 'lease_test_fill_databases'});
value($node, "CREATE DATABASE $_") foreach qw(last beyond);
my $log_at = -s $node->logfile;
my $told = sub { return scalar(() = PostgreSQL::Test::Utils::slurp_file($node->logfile, $log_at) =~ /LOG: .* no sweeper and no counters/g); };

value($node, 'SELECT fill_databases(254)');
create_lease($node, 'last');
is(value($node, q{SELECT acquired FROM lease.acquire('k', 'ann', '1 hour')}, 'last'), 't', 'the last one that has room');
is(value($node, 'SELECT grants FROM lease.stats', 'last'), '1', 'is counted');
row_is($node, 'SELECT count(*) FROM lease.sweepers', '256', 'as many as there is room for');
is($told->(), 0, 'so far there is nothing to say');

create_lease($node, 'beyond');
my $session = session($node, dbname => 'beyond');
$session->answers(q{SELECT acquired, epoch FROM lease.acquire('k', 'ann', '1 hour')}, 't|1', 'one too many: leases work');
$session->answers(q{SELECT status FROM lease.release('k', 'ann', 1)}, 'ok', 'one too many: to the end');
is(value($node, q{SELECT acquired, epoch FROM lease.acquire('k', 'bob', '1 hour')}, 'beyond'), 't|3', 'one too many: in every session');
$session->answers(q{SELECT c.key FROM lease.stats s, json_each_text(row_to_json(s)) c WHERE c.value IS NOT NULL}, 'database', 'lease.stats knows nothing, and does not say 0');
$session->answers('SELECT lease.reset_stats()', '', 'there is nothing to set back');
$session->answers('SELECT count(*) FROM lease.stats WHERE stats_reset IS NULL', '1', 'nor is it then');
is($told->(), 1, 'the log says so, once');
like(PostgreSQL::Test::Utils::slurp_file($node->logfile, $log_at), qr/no sweeper and no counters\n.*DETAIL: .*\n.*HINT: /, 'with a hint');
$session->quit;
$node->stop;

done_testing();
