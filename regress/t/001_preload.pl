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

# Every function, procedure and view there is, the trigger also as one; and a wrong argument does not come first.
my %calls = (
	'bad input' => "SELECT * FROM lease.acquire(NULL, '', '0')",
	'trigger' => 'INSERT INTO fenced VALUES (1)',
	map { split /\|/, $_, 2 } split /\n/, value($node, q{
		SELECT p.oid::regprocedure::text,
			format('%s lease.%I(%s)', CASE p.prokind WHEN 'p' THEN 'CALL' ELSE 'SELECT' END, p.proname, (
				SELECT string_agg(CASE a.type::regtype::text WHEN 'text' THEN '''k''' WHEN 'interval' THEN '''1 min''' WHEN 'bigint' THEN '1'
					ELSE 'NULL::' || a.type::regtype END, ', ' ORDER BY a.number)
				FROM unnest(p.proargtypes) WITH ORDINALITY AS a (type, number)))
		FROM pg_proc p WHERE p.pronamespace = 'lease'::regnamespace
		UNION ALL
		SELECT 'view ' || relname, format('SELECT * FROM lease.%I', relname) FROM pg_class WHERE relnamespace = 'lease'::regnamespace AND relkind = 'v'}));
$node->safe_psql('postgres', q{
	CREATE TABLE fenced (key int);
	CREATE TRIGGER fence BEFORE INSERT ON fenced FOR EACH ROW EXECUTE FUNCTION lease.fence('k')});
my ($acquire) = grep { /^lease\.acquire\(/ } keys %calls;
cmp_ok(scalar(keys %calls), '>=', 24, 'the calls: ' . join ', ', sort keys %calls);
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
refused('in a transaction', $acquire);
$session->answers('ROLLBACK TO s; SELECT 1; COMMIT', '1', 'and the transaction goes on after a savepoint');
$session->quit;
$node->append_conf('postgresql.conf', "session_preload_libraries = 'pg_lease'");
$node->reload;
$session = session($node);
refused('session_preload_libraries', $acquire);
$session->quit;

is(value($node, 'SELECT count(*) FROM lease.entry'), '0', 'nothing was written');
$node->safe_psql('postgres', 'DROP TABLE fenced; DROP EXTENSION pg_lease; CREATE EXTENSION pg_lease');

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
