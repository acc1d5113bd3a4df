# Without shared_preload_libraries: CREATE EXTENSION works, every function says what is missing, nothing breaks.
# Proves: I10 (a failed operation changes nothing), R3 (nothing to repair once the library is preloaded)

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

my $node = lease_cluster('preload', preload => 0, extension => 0);

$node->safe_psql('postgres', 'CREATE EXTENSION pg_lease');
pass('CREATE EXTENSION works');

my %calls = (
	acquire => "SELECT * FROM lease.acquire('k', 'a', '1 min')",
	renew => "SELECT * FROM lease.renew('k', 'a', 1, '1 min')",
	release => "SELECT * FROM lease.release('k', 'a', 1)",
	inspect => "SELECT * FROM lease.inspect('k')",
	now => 'SELECT lease.now()',
	claims => 'SELECT * FROM lease.claims',
	clock => 'SELECT * FROM lease.clock',
	'bad input' => "SELECT * FROM lease.acquire(NULL, '', '0')");
my $session = session($node);

sub refused
{
	my ($how, $call) = @_;
	my $answer = $session->run($calls{$call});

	is($answer->{state}, '55000', "$how: $call is 55000");
	like($answer->{hint} // '', qr/shared_preload_libraries/, "$how: $call has the hint");
	return;
}

refused('not preloaded', $_) foreach sort keys %calls;

# The library in the session only is not enough.
$session->value("LOAD 'pg_lease'");
refused('loaded by LOAD', $_) foreach sort keys %calls;
$session->quit;
$session = session($node);
$session->value("LOAD 'pg_lease'; BEGIN; SAVEPOINT s");
refused('in a transaction', 'acquire');
$session->answers('ROLLBACK TO s; SELECT 1; COMMIT', '1', 'and the transaction goes on after a savepoint');
$session->quit;
$node->append_conf('postgresql.conf', "session_preload_libraries = 'pg_lease'");
$node->reload;
$session = session($node);
refused('session_preload_libraries', 'acquire');
$session->quit;

is(value($node, 'SELECT count(*) FROM lease.entry'), '0', 'nothing was written');
$node->safe_psql('postgres', 'DROP EXTENSION pg_lease; CREATE EXTENSION pg_lease');

# With the library, what is there works.
$node->append_conf('postgresql.conf', "session_preload_libraries = ''\nshared_preload_libraries = 'pg_lease'");
$node->restart;
row_is($node, "SELECT acquired, epoch FROM lease.acquire('k', 'a', '1 min')", 't|1', 'preloaded, without any further step, it works');

# Beside another preloaded library.
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_stat_statements, pg_lease, auto_explain'");
$node->restart;
row_is($node, "SELECT status FROM lease.renew('k', 'a', 1, '1 min')", 'ok', 'between other libraries');
$node->stop;

done_testing();
