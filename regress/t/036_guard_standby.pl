# On a standby a guard is judged at the call, by what has been replayed; after a promotion it counts as anywhere.
# Proves: I3, I10, failure row "Primary/replica failover"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

my $primary = lease_cluster('guard_primary', init => [ allows_streaming => 1 ]);
$primary->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('guard_standby');
$standby->init_from_backup($primary, 'b', has_streaming => 1);
$standby->start;

$primary->safe_psql('postgres', q{
	CREATE TABLE fenced (key text, term bigint);
	CREATE TRIGGER fence BEFORE INSERT OR UPDATE OR DELETE ON fenced FOR EACH ROW EXECUTE FUNCTION lease.fence('key', 'term');
	SELECT lease.acquire('k', 'a', '1 hour');
	SELECT lease.acquire('brief', 'a', '1 s');
});
$primary->wait_for_catchup($standby);
my $reader = session($standby);
$reader->answers("SELECT lease.guard('k', 'a', 1) > lease.now()", 't', 'standby: guarded');
$reader->answers("SELECT lease.guard('k', 'a', 2)", 'LE002', 'standby: another epoch');
$reader->answers("SELECT lease.guard('k', 'b', 1)", 'LE003', 'standby: another owner');
$reader->value('SELECT pg_sleep(1)');
$reader->answers("SELECT lease.guard('brief', 'a', 1)", 'LE001', 'standby: lapsed, without a word from the primary');
$reader->answers("SELECT lease.force_release('k')", '25006', 'standby: nothing is forced');

# Judged at the call and no further: the transaction ends well whatever happens meanwhile.
$reader->value("BEGIN; SELECT lease.guard('k', 'a', 1)");
$primary->safe_psql('postgres', "SELECT lease.release('k', 'a', 1); SELECT lease.acquire('k', 'b', '1 hour')");
$primary->wait_for_catchup($standby);
$reader->answers("SELECT lease.guard('k', 'a', 1)", 'LE003', 'standby: replayed meanwhile');
$reader->run('COMMIT');
$reader->value("BEGIN; SELECT lease.guard('k', 'b', 3)");
$reader->answers('COMMIT', '', 'standby: nothing is judged at the commit');
# a snapshot from before the term is of no use here either
$reader->value('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
$primary->safe_psql('postgres', "SELECT lease.acquire('k', 'b', '1 hour')");
$primary->wait_for_catchup($standby);
$reader->answers("SELECT lease.guard('k', 'b', 4)", '40001', 'standby: a snapshot from before the term');
$reader->run('ROLLBACK');

$primary->stop('immediate');
$standby->promote;
my $writer = session($standby);
$writer->answers("INSERT INTO fenced VALUES ('k')", 'LE003', 'promoted: the fence stands');
$writer->answers("BEGIN; SELECT lease.guard('k', 'b', 4) IS NOT NULL; INSERT INTO fenced VALUES ('k'); COMMIT; SELECT * FROM fenced", "t\nk|4", 'promoted: written under the guard');
$writer->value("BEGIN; SELECT lease.guard('k', 'b', 4)");
$reader->answers("SELECT * FROM lease.force_release('k')", 'b|4', 'promoted: forced');
$writer->answers('COMMIT', 'LE003', 'promoted: judged at the commit');
$_->quit foreach $reader, $writer;
$standby->stop;

done_testing();
