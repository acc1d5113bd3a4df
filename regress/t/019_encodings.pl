# Databases whose encoding is not UTF8, and names of roles and databases that were given in another encoding than that of the
# database they are shown in: keys are what they are, what is shown is valid text, a dump can be restored.
# Proves: I9, I11

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use LeaseTest;
use Test::More;

my $node = lease_cluster('encodings');
my $dir = PostgreSQL::Test::Utils::tempdir();
foreach my $encoding (qw(LATIN1 EUC_JP))
{
	$node->safe_psql('postgres', "CREATE DATABASE \L$encoding\E TEMPLATE template0 ENCODING '$encoding' LC_COLLATE 'C' LC_CTYPE 'C'");
	create_lease($node, lc $encoding);
}

# The client's encoding is this file's, whatever the database's is.
sub shows
{
	my ($db, $sql, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(value($node, "SET client_encoding = 'UTF8'; $sql", $db), $expected, $name);
}

# --- Keys, owners and payloads; the limits count the bytes of the database's encoding.
my %name = (latin1 => [ 'schlüssel', 'Jürgen' ], euc_jp => [ '鍵', '田中さん' ], postgres => [ 'schlüssel 鍵', 'Jürgen 田中' ]);
my %as_shown = (latin1 => 'schl\\xfcssel', euc_jp => '\\xb8\\xb0', postgres => 'schlüssel 鍵');
foreach my $db (sort keys %name)
{
	my ($key, $owner) = @{ $name{$db} };
	my $session = session($node, dbname => $db, setup => q{SET client_encoding = 'UTF8'});
	$session->answers(qq{SELECT acquired, epoch FROM lease.acquire('$key', '$owner', '1 hour', NULL, '{"where": "$owner"}')}, 't|1', "$db: acquired");
	$session->answers(qq{SELECT state, owner, epoch, payload FROM lease.inspect('$key')}, qq{held|$owner|1|{"where": "$owner"}}, "$db: inspect");
	$session->answers(qq{SELECT status FROM lease.renew('$key', '$owner', 1, '1 hour')}, 'ok', "$db: renewed");
	$session->answers(qq{SELECT key, owner, payload FROM lease.leases}, qq{$key|$owner|{"where": "$owner"}}, "$db: lease.leases");
	$session->value(qq{BEGIN; SELECT lease.renew('$key', '$owner', 1, '1 hour')});
	$session->answers('SELECT key, owner FROM lease.claims', "$key|$owner", "$db: lease.claims");
	$session->value('COMMIT');
	my $error = $session->run(qq{SELECT lease.guard('$key', '$owner', 9)});
	is($error->{state}, 'LE002', "$db: an error");
	like($error->{message}, qr/\Q"$as_shown{$db}"\E/, "$db: names the key");
	$session->quit;
}
my $euc = session($node, dbname => 'euc_jp', setup => q{SET client_encoding = 'UTF8'});
$euc->answers(q{SELECT acquired FROM lease.acquire('x' || repeat('鍵', 127), 'o', '1 hour')}, 't', 'a key of 255 bytes, in the database\'s encoding');
$euc->answers(q{SELECT acquired FROM lease.acquire(repeat('鍵', 128), 'o', '1 hour')}, '22023', 'of 256');
# (of which that key has more in UTF8)
$euc->value(q{DELETE FROM lease.entry WHERE key LIKE 'x%'});
$euc->quit;

# --- Names of the whole server, given in another database.
$node->safe_psql('latin1', q{SET client_encoding = 'UTF8'; CREATE ROLE "müller"; CREATE DATABASE "größe" TEMPLATE latin1});
my $role = value($node, q{SET client_encoding = 'UTF8'; SELECT oid FROM pg_roles WHERE rolname = 'müller'}, 'latin1');
my %granted_to = (latin1 => 'müller', euc_jp => 'm\\xfcller', postgres => 'm\\xfcller');
foreach my $db (sort keys %granted_to)
{
	my $session = session($node, dbname => $db, setup => q{SET client_encoding = 'UTF8'; GRANT USAGE ON SCHEMA lease TO PUBLIC});
	$session->answers("SELECT set_config('role', rolname, false) IS NOT NULL FROM pg_roles WHERE oid = $role", 't', "$db: in that role");
	$session->answers(q{SELECT acquired FROM lease.acquire('by role', 'o', '1 hour')}, 't', "$db: acquired");
	$session->answers(q{RESET ROLE; SELECT granted_to FROM lease.leases WHERE key = 'by role'}, $granted_to{$db}, "$db: the role it was granted to");
	$session->quit;
}
row_is($node, q{SELECT count(*) FROM lease.entry WHERE convert_from(convert_to(granted_to, 'UTF8'), 'UTF8') <> granted_to}, '0', 'what is stored is valid');
my $database = "gr\xf6\xdfe";
value($node, 'SELECT lease.now()', $database);
shows('postgres', q{SELECT database FROM lease.sweepers WHERE database LIKE 'gr%'}, 'gr\\xf6\\xdfe', 'lease.sweepers names such a database');
shows('latin1', q{SELECT database FROM lease.sweepers WHERE database LIKE 'gr%'}, 'größe', 'as it is, where it can');

# --- Dump and restore, also into another encoding.
foreach my $case ([ 'postgres', 'UTF8' ], [ 'latin1', 'LATIN1' ], [ 'latin1', 'UTF8' ], [ 'euc_jp', 'EUC_JP' ], [ 'euc_jp', 'UTF8' ])
{
	my ($from, $to) = @$case;
	my $db = "from $from to $to";
	my $rows = q{SELECT key, state, owner, epoch, granted_to, payload FROM lease.leases ORDER BY convert_to(key, 'UTF8')};
	$node->safe_psql('postgres', qq{CREATE DATABASE "$db" TEMPLATE template0 ENCODING '$to' LC_COLLATE 'C' LC_CTYPE 'C'});
	$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dir/dump", $from ], "$db: dumped");
	$node->command_ok([ 'pg_restore', '-e', '-d', $db, "$dir/dump" ], "$db: restored");
	shows($db, $rows . q{ LIMIT 2}, value($node, "SET client_encoding = 'UTF8'; $rows LIMIT 2", $from), "$db: every key is what it was");
}

# --- What a sweeper failed with: an error of PostgreSQL's in the database's encoding, cut at a character's end.
my %error = (latin1 => [ 'Größe: ' . 'ö' x 300, 'Größe: ' . 'ö' x 233 ], euc_jp => [ 'x' . '鍵' x 300, 'x' . '鍵' x 119 ], postgres => [ 'x鍵' . 'ö' x 300, 'x鍵' . 'ö' x 118 ]);
foreach my $db (sort keys %error)
{
	my ($message, $kept) = @{ $error{$db} };
	# an index that cannot take the row of the lapse
	$node->safe_psql($db, qq{
		SET client_encoding = 'UTF8';
		TRUNCATE lease.entry;
		CREATE FUNCTION fails(timestamptz, timestamptz) RETURNS int LANGUAGE plpgsql IMMUTABLE AS \$\$ BEGIN RAISE EXCEPTION '$message'; END \$\$;
		CREATE OPERATOR CLASS failing FOR TYPE timestamptz USING btree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 fails(timestamptz, timestamptz);
		SELECT lease.acquire('short', 'o', '1 s');
		CREATE INDEX fails ON lease.entry (clock_base failing, state)});
	$node->poll_query_until($db, 'SELECT last_error IS NOT NULL FROM lease.sweepers WHERE database = current_database()') or die "$db: the sweeper does not fail";
	shows($db, 'SELECT last_error FROM lease.sweepers WHERE database = current_database()', $kept, "$db: last_error");
	$node->safe_psql($db, 'DROP INDEX lease.fails');
}
$node->stop;

done_testing();
