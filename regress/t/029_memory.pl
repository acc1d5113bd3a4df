# Many claims are shown completely, by looks at bounded parts of them; and memory that runs out is an error of the statement,
# never the end of the server;
# of the sweeper it ends the one process, which is started anew.
# Proves: I10, failure row "Resource exhaustion"

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

my $node = lease_cluster('memory', conf => "pg_lease.max_claims = 400000\nlog_min_messages = warning");
my ($a, $b) = map { session($node) } 1 .. 2;

# --- More than one look's worth.
$a->value(q{BEGIN; SELECT count(*) FROM generate_series(1, 5000) i, LATERAL lease.acquire('key ' || i, 'o', '1 hour')});
$b->answers('SELECT count(*), count(DISTINCT key), count(DISTINCT pid) FROM lease.claims', '5000|5000|1', 'each claim is shown once');
$a->answers('SELECT count(*), count(DISTINCT key) FROM lease.leases', '5000|5000', 'and each own change');
$a->value('COMMIT');
$a->value(q{BEGIN; SELECT count(*) FROM generate_series(1, 5000) i, LATERAL lease.renew('key ' || i, 'o', 1, '1 hour')});
$b->answers('SELECT count(*) FILTER (WHERE in_flight), count(*) FROM lease.leases', '5000|5000', 'all are in flight to others');
$a->value('ROLLBACK');
$b->answers('SELECT count(*) FROM lease.claims', '0', 'none is left');

# --- With little memory to spare (for the system allows no process more).
SKIP:
{
	my $log_at = -s $node->logfile;
	sub limited
	{
		my ($pid, $spare_mb) = @_;
		open my $statm, '<', "/proc/$pid/statm" or return 0;
		my ($pages) = split ' ', <$statm>;
		my $limit = $pages * 4096 + $spare_mb * 1024 * 1024;
		return system('prlimit', '--pid', $pid, "--as=$limit:unlimited") == 0;
	}
	skip 'a process\'s memory cannot be limited here', 11 unless -e '/proc/self/statm' && system('prlimit --version >/dev/null 2>&1') == 0;

	ok(limited($b->pid, 50), 'limited');
	$b->answers('SELECT count(*) FROM lease.claims', '0', 'lease.claims takes no more than it shows');
	$b->answers('SELECT count(*) FROM lease.waiters', '0', 'nor does lease.waiters');
	$b->answers('SELECT count(*) FROM lease.leases', '5000', 'nor does lease.leases');
	my $state = $b->run(q{SELECT count(*) FROM generate_series(1, 190000) i, LATERAL lease.acquire('more ' || i, 'o', '1 hour')});
	is($state->{state}, '53200', 'more changes than there is memory for: 53200');
	$b->answers('SELECT count(*) FROM lease.claims', '0', 'nothing is left of them');
	$b->answers(q{SELECT acquired FROM lease.acquire('more 1', 'o', '1 hour')}, 't', 'the session goes on');
	$a->answers(q{SELECT count(*) FROM lease.leases}, '5001', 'so do others');

	# The sweeper, which keeps a deadline of each lease.
	$node->poll_query_until('postgres', q{SELECT status = 'running' FROM lease.sweepers}) or die 'no sweeper';
	my $sweeper = value($node, 'SELECT pid FROM lease.sweepers');
	ok(limited($sweeper, 2), 'the sweeper is limited');
	$a->value(q{SELECT count(*) FROM generate_series(1, 50000) i, LATERAL lease.acquire('many ' || i, 'o', '1 hour')});
	ok($node->poll_query_until('postgres', "SELECT last_error = 'out of memory' AND pid <> $sweeper FROM lease.sweepers"),
		'its error is its own end, and another one comes');
	unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile, $log_at), qr/PANIC:|terminated by signal/, 'no server process fell');
}
$_->quit foreach $a, $b;
$node->stop;

done_testing();
