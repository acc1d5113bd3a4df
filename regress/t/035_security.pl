# What others put in the way changes nothing: objects that shadow PostgreSQL's, temporary ones, default privileges, strings that
# mean something elsewhere; and who may call and write what.
# Proves: I3, I10 (who may not, changes nothing), I11

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

my $node = lease_cluster('security', extension => 0);
$node->safe_psql('postgres', q{
	CREATE ROLE app LOGIN; CREATE ROLE outsider LOGIN; CREATE ROLE operator LOGIN; CREATE ROLE "x'; DROP TABLE lease.entry; --" LOGIN;
});

# --- A database where everything that the extension's script or a caller could mean is shadowed by what raises an error: under
# every name that the script uses, an operator for every pair of types that the script has to do with, whether or not
# PostgreSQL has one for them, and a function for every type and every pair.
$node->safe_psql('postgres', 'CREATE DATABASE hostile');
my @types = qw(text varchar bpchar name "char" oid regclass regproc regprocedure regnamespace regrole regtype smallint integer bigint numeric boolean
	timestamptz timestamp interval jsonb aclitem aclitem[] text[] name[] "char"[] oid[] integer[] anyelement anyarray anynonarray);
my @functions = qw(quote_ident octet_length pg_get_userbyid now acldefault aclexplode pg_extension_config_dump current_database clock_timestamp format_type);
my %operators = (boolean => [ '=', '<>', '<', '>', '<=', '>=' ], text => ['||'], interval => ['-']);
my ($traps, $all_traps) = ('', '');
sub trap { my ($name, $arguments, $result) = @_; $traps .= "CREATE FUNCTION public.$name($arguments) RETURNS $result LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION \$\$hijacked\$\$; END';\n"; return; }
foreach my $left (@types)
{
	foreach my $right (@types)
	{
		foreach my $result (sort keys %operators)
		{
			trap("trap_$result", "$left, $right", $result);
			$traps .= "CREATE OPERATOR public.$_ (LEFTARG = $left, RIGHTARG = $right, FUNCTION = public.trap_$result);\n" foreach @{ $operators{$result} };
		}
		trap($_, "$left, $right", 'text') foreach @functions;
	}
	trap($_, $left, 'text') foreach @functions;
	# a server with assertions looks through all of its memory after each statement
	$all_traps .= "DO \$do\$ BEGIN EXECUTE \$traps\$ $traps \$traps\$; END \$do\$;\n";
	$traps = '';
}
trap($_, '', 'text') foreach @functions;
$node->safe_psql('hostile', "$all_traps $traps GRANT ALL ON SCHEMA public TO PUBLIC;
	ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO outsider;
	ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO outsider;
	ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO outsider;");
like(($node->psql('hostile', $_))[2], qr/hijacked/, "a trap: $_") foreach q{SELECT 'x'::text = 1::bigint}, q{SELECT 1::oid = 'pg_catalog'::regnamespace}, q{SELECT public.now()};
is(($node->psql('hostile', 'CREATE EXTENSION pg_lease'))[2], '', 'CREATE EXTENSION among shadows');

# Default privileges give nobody more than the script says.
sub hostile_is { my ($sql, $expected, $name) = @_; local $Test::Builder::Level = $Test::Builder::Level + 1; return is(value($node, $sql, 'hostile'), $expected, $name); }
hostile_is(q{SELECT count(*) FROM pg_catalog.pg_namespace n, pg_catalog.aclexplode(n.nspacl) a WHERE n.nspname OPERATOR(pg_catalog.=) 'lease'::name AND a.grantee OPERATOR(pg_catalog.<>) n.nspowner}, '0', 'the schema is its owner\'s alone');
hostile_is(q{SELECT count(*) FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a WHERE c.relnamespace OPERATOR(pg_catalog.=) 'lease'::regnamespace::oid AND c.relkind OPERATOR(pg_catalog.=) 'r'::"char" AND a.grantee OPERATOR(pg_catalog.<>) c.relowner}, '0', 'so are its tables');
hostile_is(q{SELECT count(*) FROM pg_catalog.pg_proc p, pg_catalog.aclexplode(p.proacl) a WHERE p.pronamespace OPERATOR(pg_catalog.=) 'lease'::regnamespace::oid AND a.grantee OPERATOR(pg_catalog.=) 'outsider'::regrole::oid}, '0', 'no function is granted to somebody by default');
hostile_is(q{SELECT count(*) FROM pg_catalog.pg_proc p WHERE p.pronamespace OPERATOR(pg_catalog.=) 'lease'::regnamespace::oid AND p.prosecdef}, '0', 'no function runs as somebody else');

# Every function and view, called with the shadows first on the path, and temporary ones besides.
$node->safe_psql('hostile', 'GRANT USAGE ON SCHEMA lease TO app');
my $app = session($node, dbname => 'hostile');
$app->value('SET SESSION AUTHORIZATION app');
$app->value($_) foreach 'CREATE TEMP TABLE entry (key text, epoch bigint)', 'CREATE TEMP TABLE epoch_floor (floor bigint)', 'CREATE TEMP TABLE pg_class (relname text)',
	'CREATE TEMP VIEW leases AS SELECT 1 AS one', q{CREATE FUNCTION pg_temp.acquire(text, text, interval) RETURNS text LANGUAGE sql AS $$ SELECT 'hijacked'::text $$},
	q{SET search_path = pg_temp, public, pg_catalog, lease}, q{SET default_table_access_method = 'heap'}, q{SET check_function_bodies = off};
$app->answers(q{SELECT acquired, epoch FROM lease.acquire('k', 'o', '1 hour')}, 't|1', 'acquire among shadows');
$app->answers(q{SELECT status FROM lease.renew('k', 'o', 1::bigint, '1 hour')}, 'ok', 'renew among shadows');
$app->answers(q{SELECT state, owner, epoch FROM lease.inspect('k')}, 'held|o|1', 'inspect among shadows');
$app->answers(q{SELECT state, owner, epoch FROM lease.leases}, 'held|o|1', 'the view among shadows');
$app->answers(q{SELECT count(difference) FROM lease.clock}, '1', 'another view among shadows');
$app->answers(q{SELECT count(c) FROM lease.claims c}, '0', 'and another');
$app->value(q{CREATE TABLE public.fenced (key text, term bigint)});
$app->value(q{CREATE TRIGGER fence BEFORE INSERT OR UPDATE OR DELETE ON public.fenced FOR EACH ROW EXECUTE FUNCTION lease.fence('key', 'term')});
$app->answers(q{INSERT INTO public.fenced VALUES ('k')}, 'LE003', 'the fence among shadows: refuses');
$app->answers(q{BEGIN; SELECT count(lease.guard('k', 'o', 1::bigint)); INSERT INTO public.fenced VALUES ('k'); COMMIT; SELECT key, term FROM public.fenced}, "1\nk|1", 'guard and fence among shadows: let pass');
$app->answers(q{SELECT status FROM lease.release('k', 'o', 1::bigint)}, 'ok', 'release among shadows');
$app->answers(q{SELECT count(one) FROM pg_temp.leases}, '1', 'the temporary objects are still there');
$app->answers(q{SELECT count(key) FROM pg_temp.entry}, '0', 'and nothing was written to them');
$app->answers(q{SELECT lease.force_release('k')}, '42501', 'force_release is not for everybody');
$app->answers("SELECT $_", '42501', "nor is $_") foreach q{lease.reset_stats()};
$app->answers($_, '42501', "no: $_") foreach 'SELECT key FROM lease.entry', q{UPDATE lease.entry SET epoch = 1::bigint}, 'DELETE FROM lease.entry', 'TRUNCATE lease.entry', 'COPY lease.entry TO stdout',
	'SELECT floor FROM lease.epoch_floor', 'CREATE TABLE lease.mine ()', 'ALTER TABLE lease.entry DISABLE TRIGGER ALL', 'DROP EXTENSION pg_lease',
	'CREATE TRIGGER t BEFORE INSERT ON lease.entry FOR EACH ROW EXECUTE FUNCTION lease.fence()', 'CREATE INDEX ON lease.entry (owner)';
$app->quit;

# --- Without USAGE: no call, by whatever way; a fenced table is not written either; through a function of somebody who may, it is.
$node->safe_psql('postgres', q{
	CREATE EXTENSION pg_lease;
	GRANT USAGE ON SCHEMA lease TO app, operator, "x'; DROP TABLE lease.entry; --";
	GRANT EXECUTE ON FUNCTION lease.force_release(text) TO operator;
	CREATE TABLE fenced (key text, term bigint);
	CREATE TRIGGER fence BEFORE INSERT OR UPDATE OR DELETE ON fenced FOR EACH ROW EXECUTE FUNCTION lease.fence('key', 'term');
	GRANT ALL ON fenced TO outsider, app;
	REVOKE TRUNCATE ON fenced FROM outsider, app;
	CREATE FUNCTION write_as_owner() RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = '' AS $$
		SELECT lease.acquire('definer', 'definer', '1 min');
		INSERT INTO public.fenced VALUES ('definer') $$;
	GRANT CREATE ON SCHEMA public TO outsider;
});
my $outsider = session($node);
$outsider->value('SET SESSION AUTHORIZATION outsider');
$outsider->answers($_, '42501', "without USAGE: $_") foreach q{SELECT lease.acquire('k', 'o', '1 min')}, q{SELECT lease.guard('k', 'o', 1)}, q{SELECT lease.inspect('k')}, 'SELECT * FROM lease.leases',
	'SELECT lease.now()', q{SELECT lease.force_release('k')}, q{CREATE TABLE mine (); CREATE TRIGGER f BEFORE INSERT ON mine FOR EACH ROW EXECUTE FUNCTION lease.fence('k')};
$outsider->answers(q{INSERT INTO fenced VALUES ('k')}, 'LE003', 'without USAGE: a fenced table is not written');
$outsider->answers('TRUNCATE fenced', '42501', 'TRUNCATE has to be revoked, and is');
$outsider->answers('SELECT write_as_owner()', '', 'a SECURITY DEFINER function of one who may writes it');
row_is($node, 'SELECT key, term FROM fenced', 'definer|1', 'and it is written');
# the guard was the function's transaction's: it is the transaction that is guarded, not the function
$outsider->answers(q{BEGIN; SELECT write_as_owner(); INSERT INTO fenced VALUES ('definer'); COMMIT; SELECT count(*) FROM fenced WHERE key = 'definer'}, "\n3", 'what a transaction guards, all of it may write');
$outsider->quit;
my $operator = session($node);
$operator->value('SET SESSION AUTHORIZATION operator');
$operator->answers(q{SELECT * FROM lease.force_release('definer')}, 'definer|2', 'EXECUTE on force_release can be granted');
$operator->quit;

# --- Strings that mean something elsewhere are kept as they are, in rows, views and messages.
my @strings = (q{'; DROP TABLE lease.entry; --}, q{$$; DROP SCHEMA lease CASCADE; $$}, '%s%n%x %d %m', q{"quoted" \\ back\\slash}, "two\nlines\tand a tab", "\e[31mred\e[0m", 'x' x 255,
	"\xc3\xa4\xe2\x82\xac\xf0\x9f\x94\x92", '{"json": true}', 'lease.entry', 'NULL', ' ', '../../etc/passwd');
my $strange = session($node);
$strange->value(q{SET SESSION AUTHORIZATION "x'; DROP TABLE lease.entry; --"});
my $i = 0;
foreach my $string (@strings)
{
	my $literal = sprintf q{convert_from(decode('%s', 'hex'), 'UTF8')}, unpack 'H*', $string;
	my $name = sprintf 'hostile string %d', ++$i;
	$strange->answers("SELECT epoch FROM lease.acquire($literal, $literal, '1 hour', NULL, to_jsonb($literal))", '1', "$name: acquired");
	$strange->answers("SELECT i.owner = $literal, i.payload = to_jsonb($literal), l.key = $literal, l.owner = $literal, l.granted_to = current_user FROM lease.inspect($literal) i, lease.leases l WHERE l.key = $literal",
		't|t|t|t|t', "$name: kept as it is");
	my $answer = $strange->run("SELECT lease.guard($literal, $literal, 7)");
	is($answer->{state}, 'LE002', "$name: refused");
	my $first_line = (split /\n/, $string)[0];
	like($answer->{message}, qr/\Q$first_line\E/, "$name: the message has it as it is");
	$strange->answers("SELECT acquired FROM lease.acquire($literal, 'another', '1 hour', '0')", '57014', "$name: and so in a timeout");
	$strange->answers("SELECT status FROM lease.release($literal, $literal, 1)", 'ok', "$name: released");
}
row_is($node, 'SELECT count(*) FROM lease.leases', 1 + @strings, 'every key is there, and nothing else happened');
$strange->answers(q{SELECT lease.acquire(E'a\\x00b', 'o', '1 min')}, '22021', 'a zero byte is no text');
$strange->quit;
$node->stop;

done_testing();
